package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// width is where the times end.
const width = 96

// story is the narrator: it knows what is up, what was measured, and how to print.
type story struct {
	out      io.Writer
	colour   bool
	pair     *pair.Pair
	bin      string
	programs controlplane.Programs

	client      *client.Client
	startClient func()

	scenes  int
	workers []*pair.Worker  // the three that serve
	drained time.Time       // when the one was that was replaced
	samples []time.Duration // from a Node's change to the watch event of its slice
	began   time.Time
}

func newStory(out io.Writer) *story {
	s := &story{out: out, began: time.Now()}
	if file, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		info, err := file.Stat()
		s.colour = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// scene is one chapter, and what makes it come true.
type scene struct {
	title string
	play  func(*story, context.Context) error
	quiet bool // no EndpointSlice may be written in it
}

// sceneLimit is when a scene that does not come to its end has failed.
const sceneLimit = time.Minute

func (s *story) act(ctx context.Context, one scene) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sceneLimit, fmt.Errorf("it did not come true within %s", sceneLimit))
	defer cancel()
	s.scenes++
	fmt.Fprintf(s.out, "\n%s\n", s.bold(fmt.Sprintf("%d. %s", s.scenes, one.title)))
	before, err := s.writes(ctx)
	if err != nil {
		return err
	}
	if err := one.play(s, ctx); err != nil {
		return err
	}
	after, err := s.writes(ctx)
	if err != nil {
		return err
	}
	switch {
	case one.quiet && after != before:
		return fmt.Errorf("%d API writes on EndpointSlices, though nothing had changed", after-before)
	case one.quiet:
		s.dimf("no API write on any EndpointSlice meanwhile")
	}
	if tally := s.client.Tally(); tally.Wrong+tally.Other > 0 {
		return fmt.Errorf("%d requests failed that should not have: %s", tally.Wrong+tally.Other, strings.Join(tally.Examples, "; "))
	}
	return nil
}

func (s *story) writes(ctx context.Context) (int, error) {
	writes, err := s.pair.Writes(ctx)
	return len(writes), err
}

// sayf tells something that takes no time.
func (s *story) sayf(format string, args ...any) {
	for _, line := range wrap(fmt.Sprintf(format, args...), width-3) {
		fmt.Fprintf(s.out, "   %s\n", line)
	}
}

// tookf tells something that came true, and how long that took.
func (s *story) tookf(d time.Duration, format string, args ...any) {
	lines := wrap(fmt.Sprintf(format, args...), width-3-12)
	for _, line := range lines[:len(lines)-1] {
		fmt.Fprintf(s.out, "   %s\n", line)
	}
	last := lines[len(lines)-1]
	dots := strings.Repeat(".", max(2, width-3-10-2-len([]rune(last))))
	fmt.Fprintf(s.out, "   %s %s %s\n", last, s.faint(dots), s.bold(fmt.Sprintf("%9s", short(d))))
}

// dimf tells what is worth a glance only.
func (s *story) dimf(format string, args ...any) {
	for _, line := range wrap(fmt.Sprintf(format, args...), width-6) {
		fmt.Fprintf(s.out, "   %s\n", s.faint("- "+line))
	}
}

// quote shows a program's own words.
func (s *story) quote(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimRight(line, "\n")
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for i, part := range wrap(line, width-7-len(indent)-2) {
			if i > 0 {
				part = "  " + part
			}
			fmt.Fprintf(s.out, "     %s\n", s.faint("| "+indent+part))
		}
	}
}

// propagated waits until a change of a Node shows in the slices, and keeps the figure.
func (s *story) propagated(
	ctx context.Context,
	change func(context.Context) error,
	are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	d, err := s.pair.Propagation(ctx, change, are)
	if err == nil {
		s.samples = append(s.samples, d)
	}
	return d, err
}

// failed says where the story ended otherwise than it should.
func (s *story) failed(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Fprintf(s.out, "\n%s\n", s.bold("This did not come true:"))
	what, log, _ := strings.Cut(err.Error(), "\n")
	s.sayf("%s", what)
	s.quote(log)
	s.pair.Keep()
	s.sayf("Logs, keys and data stay in %s.", s.pair.Dir())
	fmt.Fprintln(s.out)
	for _, half := range append([]*pair.Component{s.pair.Inventory}, s.pair.Writers...) {
		fmt.Fprintln(s.out, half.Tail())
	}
	return fmt.Errorf("the story did not come true in scene %d", s.scenes)
}

// figures are the last lines.
func (s *story) figures(ctx context.Context) error {
	if err := s.client.Settle(ctx); err != nil {
		return err
	}
	tally := s.client.Tally()
	writes, err := s.writes(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\n%s\n", s.bold("In figures"))
	row := func(name, value, note string) {
		line := fmt.Sprintf("   %-44s %9s", name, value)
		if note != "" {
			line += "   " + s.faint(note)
		}
		fmt.Fprintln(s.out, line)
	}
	row("requests of the client", strconv.Itoa(tally.Requests), fmt.Sprintf("%d a second, a new connection each", requestsPerSecond))
	row("failed because of a wrong slice", strconv.Itoa(tally.Wrong), "")
	row("met a backend that had just died", strconv.Itoa(tally.JustDied),
		fmt.Sprintf("died less than %s ago (closed port) or %s ago (silent)", pair.RefusalBound, pair.SilenceBound))
	row("API writes on EndpointSlices", strconv.Itoa(writes), "by the writers, from the API server's audit log")
	slices.Sort(s.samples)
	if n := len(s.samples); n > 0 {
		row("propagation, p50", short(s.samples[n/2]), fmt.Sprintf("%d changes of a Node in one API server, until the", n))
		row("propagation, worst", short(s.samples[n-1]), "watch event of its EndpointSlice from the other")
	}
	row("total time", short(time.Since(s.began)), "")
	return nil
}

func (s *story) bold(text string) string  { return s.paint("1", text) }
func (s *story) faint(text string) string { return s.paint("2", text) }

func (s *story) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// short writes a duration as people would say it.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// wrap breaks a text into lines of at most so many characters.
func wrap(text string, limit int) []string {
	var lines []string
	for paragraph := range strings.Lines(text) {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			switch {
			case line == "":
				line = word
			case len([]rune(line))+1+len([]rune(word)) > limit:
				lines = append(lines, line)
				line = word
			default:
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}
