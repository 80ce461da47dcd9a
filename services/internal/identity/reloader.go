package identity

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RefreshInterval is how often files are read again. Watching them was rejected: kubelet mounts symbolic
// links and swaps them, and a missed event would go unnoticed.
const RefreshInterval = 10 * time.Second

// Reloader reloads files at an interval. If a file is invalid, its previous content stays in use. Every
// such error is counted, and logged when it first occurs, changes or ends.
type Reloader struct {
	Interval time.Duration

	log    *slog.Logger
	errors *prometheus.CounterVec
	files  []*reloadedFile
}

type reloadedFile struct {
	label, description string // in the metric and in the log
	load               func() (changed bool, err error)
	lastError          string // of the previous attempt, as logged; empty: none
}

func newReloader(cfg Config) Reloader {
	r := Reloader{Interval: RefreshInterval, log: cfg.Logger, errors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "tls_reload_errors_total",
		Help: "Number of times that a file of the link was invalid when it was reloaded, so that its previous content stayed in use.",
	}, []string{"file"})}
	r.errors.WithLabelValues("key") // its errors are those of loading the certificate
	return r
}

// AddFile loads a file now and then at each interval. load returns an error if the file is invalid.
func (r *Reloader) AddFile(label, description string, load func() (changed bool, err error)) error {
	r.errors.WithLabelValues(label) // present at 0 before the first error
	r.files = append(r.files, &reloadedFile{label: label, description: description, load: load})
	_, err := load()
	return err
}

// Run reloads changed files until ctx is done.
func (r *Reloader) Run(ctx context.Context) error {
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.Reload()
		}
	}
}

// Reload reloads changed files now.
func (r *Reloader) Reload() {
	for _, f := range r.files {
		changed, err := f.load()
		if err == nil {
			// Unchanged: after an error, the file has its previous content again.
			if changed || f.lastError != "" {
				r.log.Info("file reloaded", "file", f.description, "changed", changed)
			}
			f.lastError = ""
			continue
		}
		label := f.label
		if errors.As(err, new(keyError)) {
			label = "key"
		}
		r.errors.WithLabelValues(label).Inc()
		if f.lastError != err.Error() {
			r.log.Error("reload failed, keeping previous file", "file", f.description, "error", err)
		}
		f.lastError = err.Error()
	}
}
