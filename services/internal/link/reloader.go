package link

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloader reloads files at an interval. If a file is invalid, its previous content stays in use. Every
// such error is counted, and logged when it first occurs, changes or ends.
type reloader struct {
	interval time.Duration
	log      *slog.Logger
	errors   *prometheus.CounterVec
	reloads  []*fileReload
}

type fileReload struct {
	description string
	load        func() (changed bool, err error)
	lastError   string // of the previous attempt, as logged; empty: none
}

func newReloader(cfg *Config) *reloader {
	r := &reloader{
		interval: cfg.refreshInterval(),
		log:      cfg.Logger.With("link", cfg.Name),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: cfg.Component, Name: "tls_reload_errors_total",
			Help: "Number of times that a file of the link was invalid when it was reloaded, so that its previous content stayed in use.",
		}, []string{"file"}),
	}
	for _, file := range []string{"cert", "key", "ca"} {
		r.errors.WithLabelValues(file) // present at 0 before the first error
	}
	cfg.linkRegisterer().MustRegister(r.errors)
	return r
}

func (r *reloader) addReload(description string, load func() (bool, error)) {
	r.reloads = append(r.reloads, &fileReload{description: description, load: load})
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
	for _, f := range r.reloads {
		changed, err := f.load()
		if err == nil {
			// Unchanged: after an error, the file has its previous content again.
			if changed || f.lastError != "" {
				r.log.Info("file reloaded", "file", f.description, "changed", changed)
			}
			f.lastError = ""
			continue
		}
		if invalid := (*fileError)(nil); errors.As(err, &invalid) {
			r.errors.WithLabelValues(invalid.file).Inc()
		}
		if f.lastError != err.Error() {
			r.log.Error("reload failed, keeping previous file", "file", f.description, "error", err)
		}
		f.lastError = err.Error()
	}
}
