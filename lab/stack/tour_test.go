package stack

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// step is a block of commands of the tour, and what it is shown to print.
type step struct {
	commands string
	shown    string // empty: nothing is shown
}

// parseTour finds the blocks of a page: ```sh, each with the ```text that follows it directly.
func parseTour(page string) []step {
	var steps []step
	block, kind, in := "", "", false
	for line := range strings.Lines(page) {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && !in:
			block, kind, in = "", strings.TrimSpace(strings.TrimPrefix(line, "```")), true
		case fence:
			in = false
			if kind == "sh" {
				steps = append(steps, step{commands: block})
			} else if kind == "text" && len(steps) > 0 {
				steps[len(steps)-1].shown = block
			}
		case in:
			block += line
		}
	}
	return steps
}

// missing returns the first line of what is shown that the output does not have, in that order.
// An ellipsis stands for anything, any space for some space.
func missing(shown, output string) string {
	at := 0
	for line := range strings.Lines(shown) {
		if line = strings.TrimSpace(line); line == "" || line == "…" {
			continue
		}
		pattern := regexp.QuoteMeta(strings.Join(strings.Fields(line), " "))
		pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, "…", ".*"), " ", `[ \t]+`)
		found := regexp.MustCompile(`(?m)^[ \t]*` + pattern + `[ \t]*$`).FindStringIndex(output[at:])
		if found == nil {
			return line
		}
		at += found[1]
	}
	return ""
}

// tour runs the page's steps on the stack.
type tour struct {
	t        *testing.T
	prologue string // what every later shell has to know
}

// take runs a step. What it shows may take a while to become true, so a step that shows
// something is run again until it does.
func (g *tour) take(s step) {
	g.t.Helper()
	if strings.Contains(s.commands, "export KUBECONFIG") {
		g.prologue = s.commands
		return
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Minute)
	defer cancel()
	for {
		out, err := shell(ctx, g.prologue+s.commands)
		lacks := missing(s.shown, out)
		if err == nil && lacks == "" {
			g.t.Logf("%6.1fs  %s", time.Since(start).Seconds(), firstLine(s.commands))
			return
		}
		if err != nil || time.Since(start) > time.Minute {
			g.t.Fatalf("this step of docs/start/compose.md: %v\n%s\nprints no line %q, in its place, but\n%s", err, s.commands, lacks, out)
		}
		time.Sleep(200 * time.Millisecond) // commands that print what is so tell nobody when it changes
	}
}

func shell(ctx context.Context, commands string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = root
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > 100 {
		line = line[:100] + " …"
	}
	return line
}

func TestWhatIsShownIsLookedForInItsOrder(t *testing.T) {
	steps := parseTour("# a\n```sh\nmake up\n```\nsome words\n```sh\nlook\n```\n```text\na …  c\n…\nd\n```\n")
	if got, want := fmt.Sprintf("%q", steps), `[{"make up\n" ""} {"look\n" "a …  c\n…\nd\n"}]`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	for output, lacks := range map[string]string{
		"x\n  a b   c \nd\n": "",
		"d\na b c\n":         "d",
		"a\nc\nd\n":          "a …  c",
		"aa b c\nd\n":        "a …  c",
	} {
		if got := missing(steps[1].shown, output); got != lacks {
			t.Errorf("%q: lacks %q, want %q", output, got, lacks)
		}
	}
}
