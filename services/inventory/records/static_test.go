package records

import (
	"strings"
	"testing"
)

func TestStaticReportsItsText(t *testing.T) {
	f := newTestPipeline(Text(validJSON))
	if err := f.verify(t.Context()); err != nil || f.summary() != syncedSet {
		t.Errorf("%v, %s", err, f.summary())
	}
}

func TestStaticBadInput(t *testing.T) {
	for _, row := range badTexts {
		t.Run(row.title, func(t *testing.T) {
			if err := Check(row.text); (err == nil) != strings.HasPrefix(row.want, "synced") {
				t.Errorf("checked: %v", err)
			} else if err != nil {
				return
			}
			f := newTestPipeline(Text(row.text))
			if f.verify(t.Context()); f.summary() != row.want {
				t.Errorf("got %s, want %s", f.summary(), row.want)
			}
		})
	}
}
