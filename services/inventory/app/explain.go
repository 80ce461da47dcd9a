package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

const (
	observationTimeout = collector.ObservationTimeout
	outputWidth        = 100 // in columns
)

// observeOnce makes an observation, and reports its progress. What is missing was not observed in time.
func observeOnce(
	ctx context.Context,
	version string,
	inv command.Invocation[config.Config],
) (pipeline *collector.Pipeline, missing, err error) {
	pipeline, err = config.NewPipeline(inv.Config, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return nil, nil, settings.NewConfigError(err)
	}
	missing, err = pipeline.ObserveOnce(ctx, observationTimeout, func(text string) { fmt.Fprintln(inv.Err, text) })
	return pipeline, missing, err
}

// runExplain makes its own observation and prints why a node would be published or omitted.
func runExplain(ctx context.Context, version string, inv command.Invocation[config.Config]) error {
	pipeline, missing, err := observeOnce(ctx, version, inv)
	if err != nil {
		return err
	}
	name := inv.Args[0]
	if missing != nil {
		fmt.Fprintf(
			inv.Err,
			"No complete observation after %s. This explanation uses what is known so far:\n  %v\n",
			observationTimeout,
			missing,
		)
	}
	e, known := pipeline.Explain(name)
	if inv.Format.IsTable() {
		printExplanation(inv.Out, name, e)
		if !known {
			printSuggestions(inv.Out, name, nodeNames(pipeline.Snapshot()))
		}
		printGrpcurlHint(inv.Out, inv.Config, name)
	} else if err := inv.Format.Write(inv.Out, nodeserver.EncodeExplanation(name, &e)); err != nil {
		return err
	}
	switch {
	case missing != nil:
		return missing
	case !known:
		return fmt.Errorf("node %q not found in source", name)
	case e.Omitted != 0:
		return fmt.Errorf("node %q omitted", name)
	}
	return nil
}

// nodeNames returns the names of all nodes of the source, sorted.
func nodeNames(s collector.Snapshot) []string {
	var all []string
	for _, n := range s.Nodes {
		all = append(all, n.Name)
	}
	for _, o := range s.Omitted {
		all = append(all, o.Name)
	}
	slices.Sort(all)
	return all
}

// resultMarks precede the steps of an explanation.
var resultMarks = map[source.StepResult]string{source.Note: "  ", source.Passed: "ok", source.Failed: "no", source.Skipped: "- "}

func printExplanation(out io.Writer, name string, e roster.Explanation) {
	fmt.Fprintf(out, "%s, as a newly started inventory would publish it\n", display.Sanitize(name))
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
		fmt.Fprintf(out, "  %s  %s\n", resultMarks[s.Result], display.Wrap(question+" "+s.Detail, outputWidth, 6))
	}
	fmt.Fprintf(out, "\n%s\n", display.Wrap(e.Conclusion, outputWidth, 0))
}

// printSuggestions prints the known names that are most similar to an unknown one.
func printSuggestions(out io.Writer, name string, known []string) {
	if near := similarNames(name, known); len(near) > 0 {
		fmt.Fprintf(out, "\n%s\n", display.Wrap("Similar names: "+strings.Join(near, ", "), outputWidth, 0))
	} else {
		fmt.Fprintf(out, "\nNone of the %d node names in the source is similar.\n", len(known))
	}
}

// printGrpcurlHint prints how to request the explanation of a running inventory, which can differ:
// that inventory remembers the addresses that it has published.
func printGrpcurlHint(out io.Writer, cfg *config.Config, name string) {
	fields := map[string]any{"names": []string{name}}
	if cfg.ExportsServices() {
		fields["service"] = cfg.SourceService
	}
	request, err := json.Marshal(fields)
	if err != nil {
		return
	}
	fmt.Fprintf(out, `
A running inventory can differ, because it keeps addresses that it has published.
A client with the role operator can request its explanation:
  grpcurl -cert operator.pem -key operator-key.pem -cacert inventory-ca.pem \
    -d '%s' \
    INVENTORY:9443 slicefeed.inventory.v1.InventoryOperatorService/ExplainNodes
`, strings.ReplaceAll(string(request), "'", `'\''`))
}

// similarNames returns up to 5 known names that differ from name in a few letters or contain it,
// the most similar first.
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
