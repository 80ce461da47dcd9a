package records_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/inventory/records"
)

// urlReader is a complete new source: the records at a URL.
type urlReader struct{ url string }

func (w urlReader) Read(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK { // an error page is not a set of records
		return nil, fmt.Errorf("%s answered %s", w.url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, records.MaxBytes+1))
}

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"name":"worker-1","private_ip":"10.0.0.11","ready":true,"worker":true}]`)
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()

	nodes := records.New(records.Config{
		Reader: urlReader{
			server.URL,
		},
		Name:       "the URL " + server.URL,
		Log:        slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	_, err := nodes.Verify(context.Background(), roster.FullVerification) // the roster decides when to verify
	for _, node := range nodes.Take().Changed {
		fmt.Println(node.Name, node.State, node.InternalIPs, err)
	}
	// Output: worker-1 ready [10.0.0.11] <nil>
}
