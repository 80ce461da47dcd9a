// Package monitoring has a real Prometheus scrape the real pair, with the charts' alerts and dashboards. A query is sent as Grafana
// sends it; what Grafana draws is not tested.
package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

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
	promv1.API

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
	client, err := api.NewClient(api.Config{Address: "http://" + Listen})
	if err != nil {
		return nil, err
	}
	p := &Prometheus{API: promv1.NewAPI(client), began: time.Now()}
	p.process, err = process.Start(process.Spec{
		Name: "prometheus", Path: o.Program, Log: filepath.Join(o.Dir, "prometheus.log"), Dir: o.Dir,
		Args: []string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(o.Dir, "data"), "--web.listen-address=" + Listen},
	})
	if err != nil {
		return nil, err
	}
	if err := p.Until(ctx, "Prometheus is ready", func(ctx context.Context) (bool, error) {
		_, err := p.Instant(ctx, "vector(1)")
		return err == nil, nil // it does not listen yet
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

// Instant evaluates an expression now.
func (p *Prometheus) Instant(ctx context.Context, expr string) (model.Vector, error) {
	found, _, _, err := p.Query(ctx, expr, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return found.(model.Vector), nil
}

// History evaluates an expression over the time since the start.
func (p *Prometheus) History(ctx context.Context, expr string) (model.Matrix, error) {
	found, _, _, err := p.QueryRange(ctx, expr, promv1.Range{Start: p.began, End: time.Now(), Step: Interval})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return found.(model.Matrix), nil
}

// Alerts are all alerting rules, as Prometheus evaluates them.
func (p *Prometheus) Alerts(ctx context.Context) (all []promv1.AlertingRule, err error) {
	rules, err := p.Rules(ctx, nil)
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if alert, ok := rule.(promv1.AlertingRule); ok {
				all = append(all, alert)
			}
		}
	}
	return all, err
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
	fill := strings.NewReplacer("$__rate_interval", (10 * Interval).String(), "$cluster", ".*", "$job", ".*", "$namespace", ".*",
		"$service", ".*")
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
