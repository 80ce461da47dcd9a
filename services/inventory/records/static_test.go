package records

import (
	"strings"
	"testing"
)

func TestStaticTellsWhatItIsGiven(t *testing.T) {
	r, err := Static(good)
	must(t, err)
	f := newFeed(r)
	if err := f.look(t.Context()); err != nil || f.says() != saysGood {
		t.Errorf("%v, %s", err, f.says())
	}
}

func TestBadInputOfAStaticText(t *testing.T) {
	var titles []string
	for _, row := range badTexts {
		titles = append(titles, row.title)
		t.Run(row.title, func(t *testing.T) {
			r, err := Static(row.text)
			if !strings.HasPrefix(row.says, "synced") {
				if err == nil {
					t.Error("accepted")
				}
				return
			}
			must(t, err)
			f := newFeed(r)
			if f.look(t.Context()); f.says() != row.says {
				t.Errorf("got %s, want %s", f.says(), row.says)
			}
		})
	}
	documented(t, "static", titles)
}
