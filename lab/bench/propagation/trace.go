package propagation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/exp/trace"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// category is that of the points in a trace: see services/internal/tracepoint.
const category = "slicefeed"

// traceOf takes an execution trace of a half for so long, and returns the milestones in it.
func traceOf(ctx context.Context, half *pair.Half, lasting time.Duration) ([]mark, error) {
	url := fmt.Sprintf("http://%s/debug/pprof/trace?seconds=%.1f", half.DebugAddress(), lasting.Seconds())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", half.Name, err)
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("trace %s: %s", half.Name, response.Status)
	}
	marks, err := milestones(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the trace of %s: %w", half.Name, err)
	}
	return marks, nil
}

// milestones reads those of a trace. A trace has a clock of its own, and says now and then what
// time it is by the machine's: by that, two processes of one machine can be compared.
func milestones(from io.Reader) ([]mark, error) {
	events, err := trace.NewReader(from)
	if err != nil {
		return nil, err
	}
	var marks []mark
	var clock *trace.ClockSnapshot
	for {
		event, err := events.ReadEvent()
		if errors.Is(err, io.EOF) {
			return marks, nil
		}
		if err != nil {
			return nil, err
		}
		switch event.Kind() {
		case trace.EventSync:
			if s := event.Sync(); s.ClockSnapshot != nil {
				clock = s.ClockSnapshot
			}
		case trace.EventLog:
			log := event.Log()
			if log.Category != category {
				continue
			}
			if clock == nil {
				return nil, errors.New("the trace does not say what time it is")
			}
			marks = append(marks, mark{clock.Wall.Add(time.Duration(event.Time() - clock.Trace)), log.Message})
		}
	}
}
