package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newCheck is a check with this answer.
func newCheck(name, saw string, err error, needs ...string) Check {
	return Check{Name: name, DependsOn: needs, Run: func(context.Context) (string, error) { return saw, err }}
}

// withFollowUps is a check that finds these.
func withFollowUps(c Check, found ...Check) Check {
	c.FollowUps = func() []Check { return found }
	return c
}

func TestPrintsOneLinePerCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		checks []Check
		want   []string
		err    string
	}{
		{"all is well", []Check{newCheck("one", "allowed", nil), newCheck("number two", "v1.36.3", nil)}, []string{
			"ok    one         allowed",
			"ok    number two  v1.36.3",
		}, "<nil>"},
		{"a warning fails nothing, and what needs it is asked", []Check{newCheck("one", "", Warning("it ends in %d days: renew it", 10)), newCheck("two", "fine", nil, "one")}, []string{
			"WARN  one  it ends in 10 days: renew it",
			"ok    two  fine",
		}, "<nil>"},
		{"what needs a failed one is skipped, and what needs that too", []Check{
			newCheck("one", "", errors.New("no answer: start it")), newCheck("two", "fine", nil, "one"), newCheck("three", "fine", nil, "two"), newCheck("four", "fine", nil),
		}, []string{
			"FAIL  one    no answer: start it",
			"-     two    skipped, since it needs: one",
			"-     three  skipped, since it needs: two",
			"ok    four   fine",
		}, "1 of 4 checks failed"},
		{"a warning beside a failure does not hide it", []Check{newCheck("one", "", errors.Join(errors.New("bad"), errors.New("worse")))}, []string{
			"FAIL  one  bad worse",
		}, "1 of 1 checks failed"},
		{"what a check finds is asked next", []Check{withFollowUps(newCheck("all", "", errors.New("none")), newCheck("the first", "", errors.New("odd")), newCheck("b", "fine", nil)), newCheck("last", "fine", nil)}, []string{
			"FAIL  all   none",
			"FAIL  the first  odd",
			"ok    b          fine",
			"ok    last       fine",
		}, "2 of 4 checks failed"},
		{"a check that is skipped finds nothing", []Check{newCheck("one", "", errors.New("no")), withFollowUps(newCheck("two", "", nil, "one"), newCheck("three", "", nil))}, []string{
			"FAIL  one  no",
			"-     two  skipped, since it needs: one",
		}, "1 of 2 checks failed"},
		{"a stranger's text stays in its line", []Check{newCheck("one", "", errors.New("a\r\nok    two  \x1b[2Jfine\xff\u0085"+strings.Repeat("é", 400)))}, []string{
			"FAIL  one  a ok two [2Jfine? " + strings.Repeat("é", 291) + "…",
		}, "1 of 1 checks failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Run(t.Context(), &out, tt.checks)
			if d := cmp.Diff(strings.Join(tt.want, "\n")+"\n", out.String()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if got := fmt.Sprint(err); got != tt.err {
				t.Errorf("got the error %q, want %q", got, tt.err)
			}
		})
	}
}

func TestChecksTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		var out bytes.Buffer
		began := time.Now()
		err := Run(t.Context(), &out, []Check{{Name: "one", Run: hangs}, {Name: "two", Timeout: time.Minute, Run: hangs}})
		if err == nil || time.Since(began) != DefaultTimeout+time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		for _, want := range []string{"no answer within 15s", "no answer within 1m0s"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it does not say %q:\n%s", want, out.String())
			}
		}
	})
}

func TestStopsOnCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	interrupt := Check{Name: "one", Run: func(context.Context) (string, error) { cancel(); return "fine", nil }}
	if err := Run(ctx, &out, []Check{interrupt, newCheck("two", "fine", nil)}); !errors.Is(err, context.Canceled) || strings.Contains(out.String(), "two") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
