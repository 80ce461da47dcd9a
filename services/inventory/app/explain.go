package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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
