package link

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloader re-reads files at an interval. What cannot be used leaves what is in use alone,
// is counted each time that it is met, and logged when it begins, changes or ends.
type reloader struct {
	interval time.Duration
	log      *slog.Logger
	errors   *prometheus.CounterVec
	reloads  []*fileReload
}

type fileReload struct {
	description string
	load        func() (changed bool, err error)
	lastError   string // the present error, as logged
}

func newReloader(cfg *Config) *reloader {
	r := &reloader{
		interval: cfg.refreshInterval(),
		log:      cfg.Logger.With("link", cfg.Name),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: cfg.Component, Name: "tls_reload_errors_total",
			Help: "Times that a file of the link was re-read and could not be used, so the old content stayed in use.",
		}, []string{"file"}),
	}
	for _, file := range []string{"cert", "key", "ca"} {
		r.errors.WithLabelValues(file) // so that it is there, at 0, before the first error
	}
	cfg.linkRegisterer().MustRegister(r.errors)
	return r
}

func (r *reloader) addReload(what string, load func() (bool, error)) {
	r.reloads = append(r.reloads, &fileReload{description: what, load: load})
}

func (r *reloader) run(ctx context.Context) error {
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.reloadAll()
		}
	}
}

func (r *reloader) reloadAll() {
	for _, p := range r.reloads {
		changed, err := p.load()
		if err == nil {
			if changed || p.lastError != "" {
				r.log.Info("file of the link re-read", "what", p.description, "changed", changed)
			}
			p.lastError = ""
			continue
		}
		if bad := (*fileError)(nil); errors.As(err, &bad) {
			r.errors.WithLabelValues(bad.file).Inc()
		}
		if p.lastError != err.Error() {
			r.log.Error("file of the link cannot be used, the old content stays in use", "what", p.description, "error", err)
		}
		p.lastError = err.Error()
	}
}
