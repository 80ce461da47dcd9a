// Package monitoring has a real Prometheus scrape the real pair, with the charts' alerts and dashboards. A query is sent as Grafana
// sends it; what Grafana draws is not tested.
package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slicefeed/slicefeed/lab/process"
)

// Listen is the address of Prometheus.
const Listen = "127.0.0.1:9090"

// Interval is how often it scrapes, and evaluates the rules.
const Interval = time.Second

// Options describe a Prometheus.
type Options struct {
	Program string              // its path
	Dir     string              // for its data, configuration and log
	Targets map[string][]string // host and port of the admin listeners, by job
	Rules   []string            // rule files
}

// Prometheus is one that runs.
type Prometheus struct {
	process *process.Process
	began   time.Time
}

// Start starts Prometheus and returns when it answers.
func Start(ctx context.Context, o Options) (*Prometheus, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(o.Dir, "prometheus.yaml")
	if err := os.WriteFile(config, o.config(), 0o600); err != nil {
		return nil, err
	}
	p := &Prometheus{began: time.Now()}
	var err error
	p.process, err = process.Start(process.Spec{
		Name: "prometheus", Path: o.Program, Log: filepath.Join(o.Dir, "prometheus.log"), Dir: o.Dir,
		Args: []string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(o.Dir, "data"), "--web.listen-address=" + Listen},
	})
	if err != nil {
		return nil, err
	}
	if err := p.Until(ctx, "Prometheus is ready", func(ctx context.Context) (bool, error) {
		resp, err := p.get(ctx, "/-/ready", nil)
		if err != nil {
			return false, nil // it does not listen yet
		}
		defer resp.Body.Close() //nolint:errcheck // nothing of it is read
		return resp.StatusCode == http.StatusOK, nil
	}); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// config is as a PodMonitor of the charts makes it: the targets have the labels of their Pod, and
// the metrics' own labels win.
func (o Options) config() []byte {
	type m = map[string]any
	var jobs []m
	for job, targets := range o.Targets {
		jobs = append(jobs, m{
			"job_name": job, "honor_labels": true, "static_configs": []m{{
				"targets": targets, "labels": m{"namespace": "of-the-pod", "container": job, "endpoint": "admin"},
			}},
		})
	}
	text, err := yaml.Marshal(m{
		"global": m{
			"scrape_interval":     Interval.String(),
			"scrape_timeout":      Interval.String(),
			"evaluation_interval": Interval.String(),
		},
		"scrape_configs": jobs,
		"rule_files":     o.Rules,
	})
	if err != nil {
		panic(err) // it is made of texts alone
	}
	return text
}

// Stop ends Prometheus.
func (p *Prometheus) Stop() error { return p.process.Stop(0) }

// Until calls a function until it returns true. Prometheus does not report what it has scraped.
func (p *Prometheus) Until(ctx context.Context, what string, is func(context.Context) (bool, error)) error {
	tick := time.NewTicker(Interval / 4)
	defer tick.Stop()
	for {
		ok, err := is(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-p.process.Done():
			return fmt.Errorf("%s: %w", what, p.process.Wait())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// Series is one of an answer.
type Series struct {
	Labels map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`  // of an instant
	Values [][2]any          `json:"values"` // of a range: time and value
}

// Query evaluates an expression now.
func (p *Prometheus) Query(ctx context.Context, expr string) ([]Series, error) {
	return p.ask(ctx, "/api/v1/query", url.Values{"query": {expr}})
}

// History evaluates an expression over the time since the start.
func (p *Prometheus) History(ctx context.Context, expr string) ([]Series, error) {
	return p.ask(ctx, "/api/v1/query_range", url.Values{
		"query": {expr}, "start": {unix(p.began)}, "end": {unix(time.Now())}, "step": {Interval.String()},
	})
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func (p *Prometheus) ask(ctx context.Context, path string, query url.Values) ([]Series, error) {
	var data struct {
		Result []Series `json:"result"`
	}
	if err := p.data(ctx, path, query, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", query.Get("query"), err)
	}
	return data.Result, nil
}

// Rule is an alert as Prometheus evaluates it.
type Rule struct {
	Name      string  `json:"name"`
	Query     string  `json:"query"`
	State     string  `json:"state"` // inactive, pending or firing
	Health    string  `json:"health"`
	LastError string  `json:"lastError"`
	Alerts    []Alert `json:"alerts"`
}

// Alert is one of a rule.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"`
}

// Rules are all alerts.
func (p *Prometheus) Rules(ctx context.Context) ([]Rule, error) {
	var data struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := p.data(ctx, "/api/v1/rules", nil, &data); err != nil {
		return nil, err
	}
	var all []Rule
	for _, group := range data.Groups {
		all = append(all, group.Rules...)
	}
	return all, nil
}

// Types are those of all metrics that were scraped, by name.
func (p *Prometheus) Types(ctx context.Context) (map[string]string, error) {
	var data map[string][]struct {
		Type string `json:"type"`
	}
	if err := p.data(ctx, "/api/v1/metadata", nil, &data); err != nil {
		return nil, err
	}
	types := map[string]string{}
	for name, told := range data {
		types[name] = told[0].Type
	}
	return types, nil
}

func (p *Prometheus) data(ctx context.Context, path string, query url.Values, into any) error {
	resp, err := p.get(ctx, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	answer := struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}{Data: into}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s answers %s", path, answer.Error)
	}
	return nil
}

func (p *Prometheus) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+Listen+path+"?"+query.Encode(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &ended{resp.Body, cancel}
	return resp, nil
}

// ended is a body that ends its request when it is closed.
type ended struct {
	body interface {
		Read(p []byte) (int, error)
		Close() error
	}
	cancel context.CancelFunc
}

// Read reads the body.
func (e *ended) Read(b []byte) (int, error) { return e.body.Read(b) }

// Close ends the request.
func (e *ended) Close() error {
	defer e.cancel()
	return e.body.Close()
}

// Hasten returns a rule file whose alerts fire after this time at most.
func Hasten(text []byte, most time.Duration) ([]byte, error) {
	var file struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			rule["for"] = most.String()
		}
	}
	return yaml.Marshal(file)
}

// Panel is a panel of a dashboard.
type Panel struct {
	Title   string
	Queries []string // with its variables filled in
}

// Panels reads a dashboard.
func Panels(text []byte) ([]Panel, error) {
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return nil, err
	}
	fill := strings.NewReplacer(
		"$__rate_interval",
		(10 * Interval).String(),
		"$cluster",
		".*",
		"$job",
		".*",
		"$namespace",
		".*",
		"$service",
		".*",
	)
	var all []Panel
	for _, p := range board.Panels {
		one := Panel{Title: p.Title}
		for _, target := range p.Targets {
			one.Queries = append(one.Queries, fill.Replace(target.Expr))
		}
		if len(one.Queries) > 0 {
			all = append(all, one)
		}
	}
	return all, nil
}
