package records

import (
	"strings"
	"testing"
)

func TestStaticReportsItsText(t *testing.T) {
	r, err := NewStaticReader(validJSON)
	must(t, err)
	f := newTestPipeline(r)
	if err := f.verify(t.Context()); err != nil || f.summary() != syncedSet {
		t.Errorf("%v, %s", err, f.summary())
	}
}

func TestStaticBadInput(t *testing.T) {
	var titles []string
	for _, row := range badTexts {
		titles = append(titles, row.title)
		t.Run(row.title, func(t *testing.T) {
			r, err := NewStaticReader(row.text)
			if !strings.HasPrefix(row.want, "synced") {
				if err == nil {
					t.Error("accepted")
				}
				return
			}
			must(t, err)
			f := newTestPipeline(r)
			if f.verify(t.Context()); f.summary() != row.want {
				t.Errorf("got %s, want %s", f.summary(), row.want)
			}
		})
	}
	checkDocumented(t, "static", titles)
}
