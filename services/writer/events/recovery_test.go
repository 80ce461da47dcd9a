package events

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/writer/history"
)

var (
	shrink = Warning{
		Reason:   "ShrinkLimited",
		Source:   "blue",
		Recovery: Recovery{Reason: "ShrinkGuardOver", Note: "Guard shrink holds nothing."},
	}
	trust = Warning{
		Reason:    "SourceNotTrusted",
		Source:    "blue",
		Transient: true,
		Recovery:  Recovery{Reason: "TrustGuardOver", Note: "Guard trust holds nothing."},
	}
	noPort = Warning{Reason: "NoProbePort", Recovery: Recovery{Reason: "ServiceManaged", Note: "Service is managed again."}}
	badTag = Warning{Reason: "InvalidAnnotation", Recovery: noPort.Recovery}
	silent = Warning{Reason: "ForeignSlices"}
)

func managed(warnings ...Warning) Current {
	return Current{Warnings: warnings, Managed: true, Leading: true}
}

func rejected(warnings ...Warning) Current { return Current{Warnings: warnings, Leading: true} }

func standby(warnings ...Warning) Current { return Current{Warnings: warnings, Managed: true} }

func TestReportsEachRecoveryOnce(t *testing.T) {
	type step struct {
		after   int // seconds
		current Current
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  []string // Events, oldest first
		wake  int      // of the last step, in seconds; 0: none
	}{
		{
			"a guard that is over",
			[]step{{0, managed(shrink)}, {60, managed()}, {69, managed()}, {70, managed()}, {90, managed()}},
			[]string{"0 ShrinkLimited", "70 ShrinkGuardOver: Guard shrink holds nothing. It lasted 60s."},
			0,
		},
		{
			"a short episode",
			[]step{{0, managed(shrink)}, {0, managed()}, {10, managed()}},
			[]string{"0 ShrinkLimited", "10 ShrinkGuardOver: Guard shrink holds nothing. It lasted less than a second."},
			0,
		},
		{"it asks to be called in time", []step{{0, managed(shrink)}, {60, managed()}, {61, managed()}}, []string{"0 ShrinkLimited"}, 70},
		{
			"a guard that comes and goes has one recovery",
			[]step{{0, managed(shrink)}, {60, managed()}, {65, managed(shrink)}, {120, managed()}, {130, managed()}, {140, managed()}},
			[]string{"0 ShrinkLimited", "65 ShrinkLimited", "130 ShrinkGuardOver: Guard shrink holds nothing. It lasted 2m."},
			0,
		},
		{"a warning that was not reported", []step{{0, managed(trust)}, {4, managed()}, {20, managed()}}, nil, 0},
		{
			"of a transient warning",
			[]step{{0, managed(trust)}, {5, managed(trust)}, {60, managed()}, {70, managed()}},
			[]string{"5 SourceNotTrusted", "70 TrustGuardOver: Guard trust holds nothing. It lasted 60s."},
			0,
		},
		{"a warning without a recovery", []step{{0, managed(silent)}, {60, managed()}, {90, managed()}}, []string{"0 ForeignSlices"}, 0},
		{
			"two rejections are one episode",
			[]step{{0, rejected(noPort)}, {30, rejected(badTag)}, {60, managed()}, {70, managed()}},
			[]string{"0 NoProbePort", "30 InvalidAnnotation", "70 ServiceManaged: Service is managed again. It lasted 60s."},
			0,
		},
		{
			"a guard is not over while the Service is rejected",
			[]step{{0, managed(shrink)}, {10, rejected(noPort)}, {60, rejected(noPort)}, {100, managed(shrink)}, {200, managed()}, {210, managed()}},
			[]string{
				"0 ShrinkLimited", "10 NoProbePort", "100 ShrinkLimited", "110 ServiceManaged: Service is managed again. It lasted 90s.",
				"210 ShrinkGuardOver: Guard shrink holds nothing. It lasted 3m20s.",
			},
			0,
		},
		{"a Service that is no target any more", []step{{0, managed(shrink)}, {10, rejected()}, {60, managed()}, {90, managed()}}, []string{"0 ShrinkLimited"}, 0},
		{"another replica leads by then", []step{{0, managed(shrink)}, {10, standby(shrink)}, {60, standby()}, {70, standby()}, {80, managed()}, {100, managed()}}, []string{"0 ShrinkLimited"}, 0},
		{"another replica leads before it is due", []step{{0, managed(shrink)}, {60, managed()}, {65, standby()}, {70, managed()}, {100, managed()}}, []string{"0 ShrinkLimited"}, 0},
		{
			"another replica led in between",
			[]step{{0, managed(shrink)}, {10, standby(shrink)}, {20, managed(shrink)}, {60, managed()}, {70, managed()}},
			[]string{"0 ShrinkLimited", "70 ShrinkGuardOver: Guard shrink holds nothing. It lasted 60s."},
			0,
		},
		{"nothing was reported before a restart", []step{{0, managed()}, {60, managed()}}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var reported history.Log
			r := NewReporter(Config{Logger: slog.New(slog.DiscardHandler), History: &reported})
			begin := time.Now()
			var got []string
			var wake time.Time
			seen := 0
			collect := func(after int) {
				_, events := reported.Recent(nil)
				for i := len(events) - seen - 1; i >= 0; i-- {
					text := fmt.Sprintf("%d %s", after, events[i].Reason)
					if strings.Contains(events[i].Note, "lasted") {
						text += ": " + events[i].Note
					}
					got = append(got, text)
				}
				seen = len(events)
			}
			for n, s := range tt.steps {
				if n > 0 { // as the reconciler does
					for at := wake; !at.IsZero() && at.Before(begin.Add(time.Duration(s.after)*time.Second)); at = wake {
						wake = r.SetActive(shop, tt.steps[n-1].current, at)
						collect(int(at.Sub(begin).Seconds()))
					}
				}
				wake = r.SetActive(shop, s.current, begin.Add(time.Duration(s.after)*time.Second))
				collect(s.after)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Events (-want +got):\n%s", diff)
			}
			if want := begin.Add(
				time.Duration(tt.wake) * time.Second,
			); tt.wake == 0 && !wake.IsZero() ||
				tt.wake != 0 && !wake.Equal(want) {
				t.Errorf("wake is %v, want %d s after the start", wake, tt.wake)
			}
			if len(tt.steps[len(tt.steps)-1].current.Warnings) == 0 && tt.wake == 0 && len(r.active)+len(r.ended) != 0 {
				t.Errorf("kept: %v, %v", r.active, r.ended)
			}
		})
	}
}

func TestRecoveryIsNormalEvent(t *testing.T) {
	r := NewReporter(Config{Instance: "writer-1"})
	e := r.newEvent(shop, corev1.EventTypeNormal, "ShrinkGuardOver", "Recover", "over")
	if e.Type != corev1.EventTypeNormal || e.Action == "" || e.ReportingController != "slicefeed.dev/writer" {
		t.Errorf("%+v", e)
	}
}
