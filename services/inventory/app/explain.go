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
	patience = time.Minute // for the first complete observation
	width    = 100         // of what people read
)

// explain makes a look of its own and says why a node would be told as it is, or left out.
func explain(ctx context.Context, version string, call command.Invocation[Config]) error {
	look, err := newLookout(call.Config, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return settings.NewConfigError(err)
	}
	missing, err := look.glance(ctx, patience, func(what string) { fmt.Fprintln(call.Err, what) })
	if err != nil {
		return err
	}
	name := call.Args[0]
	if missing != nil {
		fmt.Fprintf(call.Err, "after %s something is still missing, so this is explained with what there is:\n  %v\n", patience, missing)
	}
	e, known := look.collector.Explain(name)
	write(call.Out, name, e)
	if !known {
		suggest(call.Out, name, look.collector.names())
	}
	advertise(call.Out, name)
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

// glance runs the lookout until its first complete observation, or for as long as there is
// patience, and says on the way what it waits for. Afterwards nothing moves any more. What is
// missing is not nil if there was no such observation; err is what ended it early.
func (l *lookout) glance(ctx context.Context, patience time.Duration, say func(string)) (missing, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- l.Run(ctx) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()

	say("reading the nodes…")
	said := map[string]bool{}
	once := func(what string) {
		if !said[what] {
			said[what] = true
			say(what)
		}
	}
	for {
		status, changed := l.stores.Status()
		missing = l.observed()
		if missing == nil {
			break
		}
		if status.Membership.Sync == roster.Synced && l.cloud != nil {
			once("listing the cloud…")
		}
		for _, p := range []roster.Part{status.Membership, status.Addresses} {
			if _, why, ok := strings.Cut(p.Reason, ": "); ok { // the part after it is an error
				once("  not yet: " + display.Sanitize(why))
			}
		}
		select {
		case err := <-ran:
			return nil, cmp.Or(err, ctx.Err(), errors.New("the look ended early"))
		case <-changed:
			continue
		case <-timer.C:
		}
		break
	}
	cancel()
	return missing, <-ran
}

// names are those of all nodes that the source knows.
func (c *collector) names() []string {
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

// marks are how results look.
var marks = map[roster.Result]string{roster.Note: "  ", roster.Passed: "ok", roster.Failed: "no", roster.Skipped: "- "}

// write prints an explanation for people.
func write(out io.Writer, name string, e roster.Explanation) {
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
		fmt.Fprintf(out, "  %s  %s\n", marks[s.Result], display.Wrap(question+" "+s.Saw, width, 6))
	}
	fmt.Fprintf(out, "\n%s\n", display.Wrap(e.Verdict, width, 0))
}

// suggest names those that are nearest to a name that is not known.
func suggest(out io.Writer, name string, known []string) {
	if near := similar(name, known); len(near) > 0 {
		fmt.Fprintf(out, "\n%s\n", display.Wrap("Names like it: "+strings.Join(near, ", "), width, 0))
	} else {
		fmt.Fprintf(out, "\nNone of the %d names that the source knows is like it.\n", len(known))
	}
}

// advertise says where the running inventory's own word is.
func advertise(out io.Writer, name string) {
	question, err := json.Marshal(map[string]any{"names": []string{name}, "explain": true})
	if err != nil {
		return
	}
	fmt.Fprintf(out, `
A running inventory also remembers what it told before: an address, once told, stays.
Its own word comes to a client with the role of operator by:
  grpcurl -cert operator.pem -key operator-key.pem -cacert inventory-ca.pem \
    -d '%s' \
    INVENTORY:9443 slicefeed.inventory.v1.InventoryService/ListNodes
`, strings.ReplaceAll(string(question), "'", `'\''`))
}

// similar returns up to 5 of the names that are within a few letters of one, or contain it, the
// nearest first.
func similar(name string, known []string) []string {
	const most = 5
	names := display.Suggest(name, known, max(2, len(name)/3))
	for _, k := range known {
		if name != "" && strings.Contains(k, name) && !slices.Contains(names, k) {
			names = append(names, k)
		}
	}
	names = names[:min(len(names), most)]
	for i, n := range names {
		names[i] = display.Sanitize(n)
	}
	return names
}
