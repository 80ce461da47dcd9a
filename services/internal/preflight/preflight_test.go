package preflight

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/command/commandtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCheck returns a check with a fixed result.
func newCheck(name, observed string, err error, dependsOn ...string) Check {
	return Check{Name: name, DependsOn: dependsOn, Run: func(context.Context) (string, error) { return observed, err }}
}

// newGroup returns a check of many items.
func newGroup(findings ...Finding) Check {
	return Check{Name: "all", DependsOn: []string{"one"}, Run: func(context.Context) (string, error) {
		return Summarize("item ", findings, func(passed []string) string { return fmt.Sprintf("passed: %q", passed) })
	}}
}

func TestPrintsOneLinePerCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		checks []Check
		want   []string
		err    string
	}{
		{"all pass", []Check{newCheck("one", "allowed", nil), newCheck("number two", "v1.36.3", nil)}, []string{
			"ok    one         allowed",
			"ok    number two  v1.36.3",
		}, "<nil>"},
		{"a warning does not fail dependents", []Check{newCheck("one", "", Warning("expires in %d days; renew it", 10)), newCheck("two", "fine", nil, "one")}, []string{
			"WARN  one  expires in 10 days; renew it",
			"ok    two  fine",
		}, "<nil>"},
		{"dependents of a failed check are skipped", []Check{
			newCheck("one", "", errors.New("no response; start it")), newCheck("two", "fine", nil, "one"), newCheck("three", "fine", nil, "two"), newCheck("four", "fine", nil),
		}, []string{
			"FAIL  one    no response; start it",
			"-     two    skipped; depends on one",
			"-     three  skipped; depends on two",
			"ok    four   fine",
		}, "1 of 4 checks failed"},
		{"a joined error is one line", []Check{newCheck("one", "", errors.Join(errors.New("bad"), errors.New("worse")))}, []string{
			"FAIL  one  bad worse",
		}, "1 of 1 checks failed"},
		{"each item that fails or warns has a line, failures first", []Check{newGroup(Finding{"a", "", Warning("old")}, Finding{"bbbb", "", errors.New("invalid")}, Finding{"c", "fine", nil}), newCheck("last", "fine", nil)}, []string{
			`ok    all        passed: ["a" "c"]`,
			"FAIL  item bbbb  invalid",
			"WARN  item a     old",
			"ok    last       fine",
		}, "1 of 4 checks failed"},
		{"a check of which no item passes fails", []Check{newGroup(Finding{"a", "", errors.New("invalid")}, Finding{"b", "", errors.New("empty")}), newCheck("last", "fine", nil, "all")}, []string{
			"FAIL  all     passed: []",
			"FAIL  item a  invalid",
			"FAIL  item b  empty",
			"-     last    skipped; depends on all",
		}, "3 of 4 checks failed"},
		{"a single item has only one line", []Check{newGroup(Finding{"a", "", Warning("old")})}, []string{
			"WARN  all  old",
		}, "<nil>"},
		{"items that pass have no line", []Check{newGroup(Finding{"a", "fine", nil}, Finding{"b", "fine", nil})}, []string{
			`ok    all  passed: ["a" "b"]`,
		}, "<nil>"},
		{"a skipped check has no items", []Check{newCheck("one", "", errors.New("no")), newGroup(Finding{"a", "", errors.New("no")}, Finding{"b", "", nil})}, []string{
			"FAIL  one  no",
			"-     all  skipped; depends on one",
		}, "1 of 2 checks failed"},
		{"text from outside stays in its line", []Check{newCheck("one", "", errors.New("a\r\nok    two  \x1b[2Jfine\xff\u0085"+strings.Repeat("é", 400)))}, []string{
			"FAIL  one  a ok two [2Jfine? " + strings.Repeat("é", 289) + "…",
		}, "1 of 1 checks failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Run(t.Context(), &out, command.Table, tt.checks)
			if d := cmp.Diff(strings.Join(tt.want, "\n")+"\n", out.String()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if got := fmt.Sprint(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
		})
	}
}

var update = flag.Bool("update", false, "write the example into docs/reference/output.md")

func TestReportsAsJSON(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), &out, command.JSON, []Check{
		newCheck(
			"certificate",
			"",
			Warning("expires in 10 days, on 2026-12-01; renew it"),
		),
		newCheck("API server", "v1.36.3 at https://10.0.0.12:6443", nil),
		newCheck(
			"list nodes",
			"",
			errors.New("permission list nodes missing; bind the role\nof the chart"),
		),
		newCheck("source", "", nil, "list nodes"),
	})
	if got := fmt.Sprint(err); got != "1 of 4 checks failed" {
		t.Error(got)
	}
	if err := commandtest.CheckOutput("../../../docs/reference/output.md", "preflight", out.String(), *update); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestReportsNothingWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := Run(ctx, &out, command.JSON, []Check{newCheck("one", "fine", nil)}); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

func TestChecksTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		var out bytes.Buffer
		startedAt := time.Now()
		err := Run(t.Context(), &out, command.Table, []Check{{Name: "one", Run: hangs}, {Name: "two", Timeout: time.Minute, Run: hangs}})
		if err == nil || time.Since(startedAt) != DefaultTimeout+time.Minute {
			t.Errorf("after %s: %v", time.Since(startedAt), err)
		}
		for _, want := range []string{"no response within 15s", "no response within 1m0s"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("output does not contain %q:\n%s", want, out.String())
			}
		}
	})
}

func TestStopsOnCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	interrupt := Check{Name: "one", Run: func(context.Context) (string, error) { cancel(); return "fine", nil }}
	if err := Run(
		ctx,
		&out,
		command.Table,
		[]Check{interrupt, newCheck("two", "fine", nil)},
	); !errors.Is(err, context.Canceled) ||
		strings.Contains(out.String(), "two") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
