package policyfuzz

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Request is one to the API server, below any client library that would mend it.
type Request struct {
	Method      string
	Path        string // below /apis/discovery.k8s.io/v1
	Query       url.Values
	ContentType string
	Body        []byte
	Header      http.Header
}

// Answer is what the API server said.
type Answer struct {
	Code    int
	Message string                     // of a refusal
	Slice   *discoveryv1.EndpointSlice // what has become of it, if the answer is one
}

// OK reports whether the request was done.
func (a Answer) OK() bool { return a.Code >= 200 && a.Code < 300 }

// Caller makes requests with one credential.
type Caller struct {
	client *http.Client
	host   string
}

// NewCaller makes a caller of a kubeconfig's credential.
func NewCaller(config *rest.Config) (*Caller, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	return &Caller{client: client, host: config.Host}, nil
}

// Do makes the request, with dry so that it changes nothing.
func (c *Caller) Do(ctx context.Context, r Request, dry bool) (Answer, error) {
	query := url.Values{}
	maps.Copy(query, r.Query)
	body := r.Body
	if dry {
		query.Set("dryRun", metav1.DryRunAll)
		if r.Method == http.MethodDelete && len(body) > 0 { // it takes the place of the query
			body = bytes.Replace(body, []byte("{"), []byte(`{"dryRun":["All"],`), 1)
		}
	}
	request, err := http.NewRequestWithContext(
		ctx,
		r.Method,
		c.host+"/apis/discovery.k8s.io/v1"+r.Path+"?"+query.Encode(),
		bytes.NewReader(body),
	)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
	}
	maps.Copy(request.Header, r.Header)
	if r.ContentType != "" {
		request.Header.Set("Content-Type", r.ContentType)
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
	}
	a := Answer{Code: response.StatusCode}
	var kind metav1.TypeMeta
	switch err := json.Unmarshal(said, &kind); {
	case err != nil || kind.Kind == "Status" || !a.OK():
		var status metav1.Status
		if json.Unmarshal(said, &status) != nil || status.Message == "" {
			status.Message = string(said)
		}
		a.Message = status.Message
	case kind.Kind == "EndpointSlice":
		a.Slice = new(discoveryv1.EndpointSlice)
		if err := json.Unmarshal(said, a.Slice); err != nil {
			return a, fmt.Errorf("answer to %s %s: %w", r.Method, r.Path, err)
		}
	}
	return a, nil
}
