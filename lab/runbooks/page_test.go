package runbooks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAPageIsReadInOrder(t *testing.T) {
	const page = "# A page\n" +
		"<!-- lab: a worker dies -->\n" +
		"1. Look:\n\n   ```sh\n   kubectl get nodes |\n     sort\n   ```\n\n   ```text\n   worker-1  Ready\n   ```\n" +
		"## Act\n```yaml\nkind: Service\n```\n<!-- exit 1 -->\n```sh\nfalse\n```\n<!-- until -->\n```sh\ntrue\n```\n"
	first := []Step{
		{Line: 2, Event: "a worker dies"},
		{Line: 5, Command: "kubectl get nodes |\n  sort\n", Output: "worker-1  Ready\n"},
	}
	last := []Step{
		{Line: 18, Command: "false\n", Exit: 1},
		{Line: 22, Command: "true\n", Until: true},
	}
	for heading, want := range map[string][]Step{"": append(first, last...), "Act": last, "Check": nil} {
		r := reader{heading: heading}
		got, err := r.parse(page)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("under %q (-want +got):\n%s", heading, diff)
		}
	}
}

func TestOutputsOfAPageOfExamplesAreNotRead(t *testing.T) {
	const page = "```sh\ntrue\n```\n- a:\n  ```text\n  a\n  ```\n- or b:\n  ```text\n  b\n  ```\n<!-- exit 1 -->\n```sh\nfalse\n```\n"
	r := reader{examples: true}
	got, err := r.parse(page)
	if diff := cmp.Diff([]Step{{Line: 1, Command: "true\n"}, {Line: 13, Command: "false\n", Exit: 1}}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestAPageThatCannotBeRunIsRefused(t *testing.T) {
	for page, says := range map[string]string{
		"```sh\ntrue\n":        "does not end",
		"```sh":                "does not end",
		"```bash\ntrue\n```\n": `language "bash"`,
		"```text\nok\n```\n":   "output of no command",
		"```sh\ntrue\n```\n```text\na\n```\n```text\nb\n```\n": "output of no command",
		"<!-- lab: x -->\n```text\na\n```\n":                   "output of no command",
		"<!-- until -->\n":                                     "does not come",
		"<!-- exit two -->\n```sh\ntrue\n```\n":                `exit code "two"`,
		"<!-- until -->\n<!-- lab: x -->\n":                    "followed by no command",
	} {
		r := reader{}
		if _, err := r.parse(page); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q", page, err, says)
		}
	}
}

func TestOutputsAreComparedLoosely(t *testing.T) {
	const shown = "NAME     READY  AGE\nslicefeed-writer-6f8d9c7b5d-x2x7z  1/1  3m12s\nfence: …\n"
	for _, c := range []struct {
		shown, printed string
		differs        string // empty: it does not
	}{
		{shown, "NAME READY AGE\nslicefeed-writer-5c6d7b8f9-abcde 1/1 4s\n\nfence: none\n", ""},
		{shown, "NAME READY AGE\nslicefeed-writer-5c6d7b8f9-abcde 0/1 4s\nfence: none\n", "does not print"},
		{shown, "NAME READY AGE\nslicefeed-writer-5c6d7b8f9-abcde 1/1 4s\nodd\nfence: none\n", "does not show: odd"},
		{shown, "NAME READY AGE\nslicefeed-writer-5c6d7b8f9-abcde 1/1 4s\nfence: none\nmore\n", "more than the page shows"},
		{"…\nlast\n", "a\nb\nlast\n", ""},
		{"first\n…\n", "first\na\nb\n", ""},
		{"first\n", "", "does not print"},
		{"until 2026-11-22 02:30:00, 7d2f6e1a-9c34-4b58-8f0e-1a6b3c5d7e90\n", "until 2027-01-01 10:00:59, 461c3cb7-1d37-4145-bf97-3b3a49f786eb\n", ""},
		{"on 10.0.1.11,10.0.1.12\n", "on 10.0.1.12,10.0.1.11\n", ""},
		{"on 10.0.1.11,10.0.1.12\n", "on 10.0.1.12,10.0.1.13\n", "does not print"},
		{"3 ready\n", "2 ready\n", "does not print"},
	} {
		err := Matches(c.shown, c.printed)
		if (err == nil) != (c.differs == "") || err != nil && !strings.Contains(err.Error(), c.differs) {
			t.Errorf("%q shown, %q printed: %v, want %q", c.shown, c.printed, err, c.differs)
		}
	}
}

func TestASessionKeepsItsVariablesAndSaysHowACommandEnds(t *testing.T) {
	s, err := Open(t.TempDir(), []string{"PATH=/usr/bin:/bin"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		step Step
		says string // empty: it is right
	}{
		{Step{Command: "NODE=worker-1\nsleep 600 &\n"}, ""},
		{Step{Command: "echo \"$NODE\"\n", Output: "worker-1\n"}, ""},
		{Step{Command: "false\necho reached\n"}, "code 1, want 0"},
		{Step{Command: "false\necho reached\n", Exit: 1, Output: "reached\n"}, "does not print"},
		{Step{Command: "(exit 7)\n", Exit: 7}, ""},
		{Step{Command: "true\n", Exit: 1}, "code 0, want 1"},
		{Step{Command: "false | true\n"}, "code 1"},
		{Step{Command: "if false; then echo; fi; echo \"$NODE\"\n", Output: "worker-1\n"}, ""},
		{Step{Command: "n=${n:-0}; n=$((n + 1)); echo $n\n", Output: "3\n", Until: true}, ""},
		{Step{Command: "cat\n"}, ""},
		{Step{Command: "exit 3\n"}, "ended the shell"},
	} {
		err := s.Do(t.Context(), c.step)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.step.Command, err, c.says)
		}
	}
}
