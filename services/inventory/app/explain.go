package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

const (
	observationTimeout = time.Minute // for the first complete observation
	outputWidth        = 100         // of what people read
)

// runExplain makes a look of its own and says why a node would be told as it is, or left out.
func runExplain(ctx context.Context, version string, inv command.Invocation[Config]) error {
	pipeline, err := newPipeline(inv.Config, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return settings.NewConfigError(err)
	}
	missing, err := pipeline.observeOnce(ctx, observationTimeout, func(what string) { fmt.Fprintln(inv.Err, what) })
	if err != nil {
		return err
	}
	name := inv.Args[0]
	if missing != nil {
		fmt.Fprintf(inv.Err, "after %s something is still missing, so this is explained with what there is:\n  %v\n", observationTimeout, missing)
	}
	e, known := pipeline.collector.Explain(name)
	printExplanation(inv.Out, name, e)
	if !known {
		printSuggestions(inv.Out, name, pipeline.collector.nodeNames())
	}
	printGrpcurlHint(inv.Out, name)
	switch {
	case missing != nil:
		return missing
	case !known:
		return fmt.Errorf("%q is not known to the source", name)
	case e.Left != 0:
		return fmt.Errorf("%q is left out", name)
	}
	return nil
}

// observeOnce runs the lookout until its first complete observation, or for as long as there is
// patience, and says on the way what it waits for. Afterwards nothing moves any more. What is
// missing is not nil if there was no such observation; err is what ended it early.
func (l *pipeline) observeOnce(ctx context.Context, timeout time.Duration, report func(string)) (missing, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runErr := make(chan error, 1)
	go func() { runErr <- l.Run(ctx) }()
	timer := time.NewTimer(timeout)
	defer timer.Stop()

	report("reading the nodes…")
	reported := map[string]bool{}
	reportOnce := func(text string) {
		if !reported[text] {
			reported[text] = true
			report(text)
		}
	}
	for {
		status, changed := l.stores.Status()
		missing = l.checkObserved()
		if missing == nil {
			break
		}
		if status.Membership.Sync == roster.Synced && l.cloud != nil {
			reportOnce("listing the cloud…")
		}
		for _, p := range []roster.Part{status.Membership, status.Addresses} {
			if _, reason, ok := strings.Cut(p.Reason, ": "); ok { // the part after it is an error
				reportOnce("  not yet: " + display.Sanitize(reason))
			}
		}
		select {
		case err := <-runErr:
			return nil, cmp.Or(err, ctx.Err(), errors.New("the look ended early"))
		case <-changed:
			continue
		case <-timer.C:
		}
		break
	}
	cancel()
	return missing, <-runErr
}

// nodeNames are those of all nodes that the source knows.
func (c *collector) nodeNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, n := range c.intake.Roster.Nodes() {
		all = append(all, n.Name)
	}
	for _, o := range c.intake.Roster.Omitted() {
		all = append(all, o.Name)
	}
	slices.Sort(all)
	return all
}

// resultMarks are how results look.
var resultMarks = map[roster.Result]string{roster.Note: "  ", roster.Passed: "ok", roster.Failed: "no", roster.Skipped: "- "}

// printExplanation prints an explanation for people.
func printExplanation(out io.Writer, name string, e roster.Explanation) {
	fmt.Fprintf(out, "%s, as an inventory that starts now would see it\n", display.Sanitize(name))
	stage := ""
	for _, s := range e.Steps {
		if s.Stage != stage {
			stage = s.Stage
			fmt.Fprintf(out, "\n%s\n", stage)
		}
		question := s.Question
		if !strings.HasSuffix(question, "?") {
			question += ":"
		}
		fmt.Fprintf(out, "  %s  %s\n", resultMarks[s.Result], display.Wrap(question+" "+s.Saw, outputWidth, 6))
	}
	fmt.Fprintf(out, "\n%s\n", display.Wrap(e.Verdict, outputWidth, 0))
}

// printSuggestions names those that are nearest to a name that is not known.
func printSuggestions(out io.Writer, name string, known []string) {
	if near := similarNames(name, known); len(near) > 0 {
		fmt.Fprintf(out, "\n%s\n", display.Wrap("Names like it: "+strings.Join(near, ", "), outputWidth, 0))
	} else {
		fmt.Fprintf(out, "\nNone of the %d names that the source knows is like it.\n", len(known))
	}
}

// printGrpcurlHint says where the running inventory's own word is.
func printGrpcurlHint(out io.Writer, name string) {
	request, err := json.Marshal(map[string]any{"names": []string{name}, "explain": true})
	if err != nil {
		return
	}
	fmt.Fprintf(out, `
A running inventory also remembers what it told before: an address, once told, stays.
Its own word comes to a client with the role of operator by:
  grpcurl -cert operator.pem -key operator-key.pem -cacert inventory-ca.pem \
    -d '%s' \
    INVENTORY:9443 slicefeed.inventory.v1.InventoryService/ListNodes
`, strings.ReplaceAll(string(request), "'", `'\''`))
}

// similarNames returns up to 5 of the names that are within a few letters of one, or contain it, the
// nearest first.
func similarNames(name string, known []string) []string {
	const maxNames = 5
	names := display.Suggest(name, known, max(2, len(name)/3))
	for _, k := range known {
		if name != "" && strings.Contains(k, name) && !slices.Contains(names, k) {
			names = append(names, k)
		}
	}
	names = names[:min(len(names), maxNames)]
	for i, n := range names {
		names[i] = display.Sanitize(n)
	}
	return names
}
