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
	every  time.Duration
	log    *slog.Logger
	errors *prometheus.CounterVec
	parts  []*part
}

type part struct {
	what string
	load func() (changed bool, err error)
	last string // the present error, as logged
}

func newReloader(cfg *Config) *reloader {
	r := &reloader{
		every: cfg.refresh(),
		log:   cfg.Logger.With("link", cfg.Name),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: cfg.Half, Name: "tls_reload_errors_total",
			Help: "Times that a file of the link was re-read and could not be used, so the old content stayed in use.",
		}, []string{"file"}),
	}
	for _, file := range []string{"cert", "key", "ca"} {
		r.errors.WithLabelValues(file) // so that it is there, at 0, before the first error
	}
	cfg.registerer().MustRegister(r.errors)
	return r
}

func (r *reloader) add(what string, load func() (bool, error)) {
	r.parts = append(r.parts, &part{what: what, load: load})
}

func (r *reloader) run(ctx context.Context) error {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.reload()
		}
	}
}

func (r *reloader) reload() {
	for _, p := range r.parts {
		changed, err := p.load()
		if err == nil {
			if changed || p.last != "" {
				r.log.Info("file of the link re-read", "what", p.what, "changed", changed)
			}
			p.last = ""
			continue
		}
		if bad := (*fileError)(nil); errors.As(err, &bad) {
			r.errors.WithLabelValues(bad.file).Inc()
		}
		if p.last != err.Error() {
			r.log.Error("file of the link cannot be used, the old content stays in use", "what", p.what, "error", err)
		}
		p.last = err.Error()
	}
}
