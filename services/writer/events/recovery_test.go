package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/internal/report"
)

var (
	shrink = newProblem("ShrinkLimited", "blue", "It takes out 3")
	trust  = newProblem("SourceNotTrusted", "blue", "It is not trusted")
	noPort = newRejection("NoProbePort", "No port")
	badTag = newRejection("InvalidAnnotation", "Not valid")
	silent = newProblem("ForeignSlices", "", "")
)

func newRejection(reason, message string) *report.Problem {
	p := newProblem(reason, "", message)
	p.Level = report.Error
	return p
}

func managed(problems ...*report.Problem) Current {
	return Current{Problems: problems, Managed: true, Leading: true}
}

func rejected(problems ...*report.Problem) Current {
	return Current{Problems: problems, Leading: true}
}

func standby(problems ...*report.Problem) Current {
	return Current{Problems: problems, Managed: true}
}

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
			[]string{"0 ShrinkLimited", "70 ShrinkGuardOver: Over after 60s: It takes out 3."},
			0,
		},
		{
			"a short episode",
			[]step{{0, managed(shrink)}, {0, managed()}, {10, managed()}},
			[]string{"0 ShrinkLimited", "10 ShrinkGuardOver: Over after less than a second: It takes out 3."},
			0,
		},
		{"it asks to be called in time", []step{{0, managed(shrink)}, {60, managed()}, {61, managed()}}, []string{"0 ShrinkLimited"}, 70},
		{
			"a guard that comes and goes has one recovery",
			[]step{{0, managed(shrink)}, {60, managed()}, {65, managed(shrink)}, {120, managed()}, {130, managed()}, {140, managed()}},
			[]string{"0 ShrinkLimited", "65 ShrinkLimited", "130 ShrinkGuardOver: Over after 2m: It takes out 3."},
			0,
		},
		{"a warning that was not reported", []step{{0, managed(trust)}, {4, managed()}, {20, managed()}}, nil, 0},
		{
			"of a transient warning",
			[]step{{0, managed(trust)}, {5, managed(trust)}, {60, managed()}, {70, managed()}},
			[]string{"5 SourceNotTrusted", "70 TrustGuardOver: Over after 60s: It is not trusted."},
			0,
		},
		{"a warning without a recovery", []step{{0, managed(silent)}, {60, managed()}, {90, managed()}}, []string{"0 ForeignSlices"}, 0},
		{
			"two rejections are one episode",
			[]step{{0, rejected(noPort)}, {30, rejected(badTag)}, {60, managed()}, {70, managed()}},
			[]string{"0 NoProbePort", "30 InvalidAnnotation", "70 ServiceManaged: Over after 60s: Not valid."},
			0,
		},
		{
			"a guard is not over while the Service is rejected",
			[]step{{0, managed(shrink)}, {10, rejected(noPort)}, {60, rejected(noPort)}, {100, managed(shrink)}, {200, managed()}, {210, managed()}},
			[]string{
				"0 ShrinkLimited", "10 NoProbePort", "100 ShrinkLimited", "110 ServiceManaged: Over after 90s: No port.",
				"210 ShrinkGuardOver: Over after 3m20s: It takes out 3.",
			},
			0,
		},
		{"a Service that is no target any more", []step{{0, managed(shrink)}, {10, rejected()}, {60, managed()}, {90, managed()}}, []string{"0 ShrinkLimited"}, 0},
		{"another replica leads by then", []step{{0, managed(shrink)}, {10, standby(shrink)}, {60, standby()}, {70, standby()}, {80, managed()}, {100, managed()}}, []string{"0 ShrinkLimited"}, 0},
		{"another replica leads before it is due", []step{{0, managed(shrink)}, {60, managed()}, {65, standby()}, {70, managed()}, {100, managed()}}, []string{"0 ShrinkLimited"}, 0},
		{
			"another replica led in between",
			[]step{{0, managed(shrink)}, {10, standby(shrink)}, {20, managed(shrink)}, {60, managed()}, {70, managed()}},
			[]string{"0 ShrinkLimited", "70 ShrinkGuardOver: Over after 60s: It takes out 3."},
			0,
		},
		{"nothing was reported before a restart", []step{{0, managed()}, {60, managed()}}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reported, r := newRecorded()
			begin := time.Now()
			var got []string
			var wake time.Time
			seen := 0
			collect := func(after int) {
				for _, e := range reported.events[seen:] {
					text := fmt.Sprintf("%d %s", after, e[0])
					if strings.HasPrefix(e[1], "Over after") {
						text += ": " + e[1]
					}
					got = append(got, text)
				}
				seen = len(reported.events)
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
			if len(tt.steps[len(tt.steps)-1].current.Problems) == 0 && tt.wake == 0 &&
				len(r.services[shop.UID].active)+len(r.services[shop.UID].ended) != 0 {
				t.Errorf("kept: %+v", r.services[shop.UID])
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
