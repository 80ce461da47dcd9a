package propagation

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// cost is what the API server counted in its metrics.
type cost struct {
	writes   float64 // of EndpointSlices that it answered with success
	refused  float64 // requests of any kind that it answered with 429
	rejected float64 // those of them that its priority and fairness turned away
}

func (c cost) minus(before cost) cost {
	return cost{c.writes - before.writes, c.refused - before.refused, c.rejected - before.rejected}
}

func counts(ctx context.Context, client *kubernetes.Clientset) (cost, error) {
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return cost{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return countsIn(text)
}

// countsIn finds the counts in the API server's metrics.
func countsIn(text []byte) (c cost, err error) {
	for line := range bytes.Lines(text) {
		name, labels, of := bytes.Cut(bytes.TrimSpace(line), []byte("{"))
		if !of {
			continue
		}
		is := func(label, value string) bool { return bytes.Contains(labels, []byte(label+`="`+value)) }
		var to *float64
		switch {
		case string(name) == "apiserver_flowcontrol_rejected_requests_total":
			to = &c.rejected
		case string(name) != "apiserver_request_total":
		case is("code", "429"):
			to = &c.refused
		case is("resource", "endpointslices") && is("code", "20") && (is("verb", "POST") || is("verb", "PUT") || is("verb", "DELETE")):
			to = &c.writes
		}
		if to == nil {
			continue
		}
		value := string(labels[bytes.LastIndexByte(labels, ' ')+1:])
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return cost{}, fmt.Errorf("the API server's metric %s is %q: %w", name, value, err)
		}
		*to += n
	}
	return c, nil
}
