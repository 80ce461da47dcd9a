package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// eager is how often a probe that has never passed is asked: a test has no time for a period.
const eager = 50 * time.Millisecond

// probe asks the container's probes until ctx ends; the group waits for that. Without a
// readiness probe it is ready at once.
func (p *pod) probe(ctx context.Context) *sync.WaitGroup {
	var all sync.WaitGroup
	c := p.spec()
	if c.ReadinessProbe == nil {
		p.setReady(ctx, true)
	}
	started := make(chan struct{})
	if c.StartupProbe == nil {
		close(started)
	} else {
		all.Go(func() {
			p.ask(ctx, c.StartupProbe, func(ok bool) bool {
				if !ok {
					p.fail()
				} else {
					close(started)
				}
				return false
			})
		})
	}
	after := func(probe *corev1.Probe, told func(ok bool) bool) {
		if probe == nil {
			return
		}
		all.Go(func() {
			select {
			case <-started:
				p.ask(ctx, probe, told)
			case <-ctx.Done():
			}
		})
	}
	after(c.ReadinessProbe, func(ok bool) bool { p.setReady(ctx, ok && !p.ending()); return true })
	after(c.LivenessProbe, func(ok bool) bool {
		if !ok {
			p.fail()
		}
		return ok
	})
	return &all
}

// fail ends a process whose liveness or startup probe has failed; its container starts again.
func (p *pod) fail() {
	_, running, _ := p.snapshot()
	if running != nil && !p.ending() {
		p.quit(running)
	}
}

// ask asks by the probe's times and tells each change of the answer, the first one included,
// until told says no.
func (p *pod) ask(ctx context.Context, probe *corev1.Probe, told func(ok bool) bool) {
	client := &http.Client{
		Timeout:   time.Duration(max(1, probe.TimeoutSeconds)) * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	get := probe.HTTPGet
	url := fmt.Sprintf("http://%s%s", netip.AddrPortFrom(p.address, p.port(get.Port)), get.Path)
	passed, begun := false, time.Now()
	successes, failures := int32(0), int32(0)
	timer := time.NewTimer(time.Duration(probe.InitialDelaySeconds) * time.Second)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := time.Duration(max(1, probe.PeriodSeconds)) * time.Second
		if passes(ctx, client, url) {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		if ctx.Err() != nil {
			return
		}
		switch {
		case !passed && successes >= max(1, probe.SuccessThreshold):
			if passed = true; !told(true) {
				return
			}
		case passed && failures >= max(1, probe.FailureThreshold):
			if passed = false; !told(false) {
				return
			}
		case !passed && time.Since(begun) < next*time.Duration(max(1, probe.FailureThreshold)):
			next = eager
		case !passed && failures > 0:
			if begun = time.Now(); !told(false) {
				return
			}
		}
		timer.Reset(next)
	}
}

func passes(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= 200 && response.StatusCode < 400
}

// port is a port of the container, by number or name; 0 for a name that it does not have.
func (p *pod) port(at intstr.IntOrString) uint16 {
	if at.Type == intstr.Int {
		return uint16(at.IntVal)
	}
	for _, c := range p.spec().Ports {
		if c.Name == at.StrVal {
			return uint16(c.ContainerPort)
		}
	}
	return 0
}
