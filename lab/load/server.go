package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/lab/process"
)

// Server is a program as a process, and what is needed to call it.
type Server struct {
	*process.Process

	site *Site
	at   Ports
	spec process.Spec
}

func start(site *Site, at Ports, spec process.Spec) (*Server, error) {
	s := &Server{site: site, at: at, spec: spec}
	return s, s.Start(context.Background())
}

// Start starts the program, once more after it was stopped, and waits until it is ready.
func (s *Server) Start(ctx context.Context) error {
	var err error
	if s.Process, err = process.Start(s.spec); err != nil {
		return err
	}
	err = s.Until(ctx, s.spec.Name+" is ready", time.Minute, func() (bool, error) {
		select {
		case <-s.Done():
			return false, fmt.Errorf("it ended: %w", s.Wait())
		default:
		}
		_, err := get(s.admin("/readyz"))
		return err == nil, nil
	})
	if err != nil {
		_ = s.Stop(0)
	}
	return err
}

// As is the TLS of a client of that name.
func (s *Server) As(name string) (*tls.Config, error) { return s.site.as(name) }

// Address is where its service is.
func (s *Server) Address() string { return loopback(s.at.Service) }

func (s *Server) admin(path string) string { return "http://" + loopback(s.at.Admin) + path }

func (s *Server) debug(path string) string { return "http://" + loopback(s.at.Debug) + path }

var web = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(url string) (string, error) {
	response, err := web.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), err
}

// Send has the bare server send one message to all, and returns when that was requested.
func (s *Server) Send() (time.Time, error) {
	now := time.Now()
	_, err := get(s.admin("/send"))
	return now, err
}

// Until polls: metrics do not report when they change.
func (s *Server) Until(ctx context.Context, what string, within time.Duration, is func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, within, true, func(context.Context) (bool, error) { return is() })
	if err != nil {
		return fmt.Errorf("wait %s until %s: %w", within, what, err)
	}
	return nil
}

// Metrics are the values of all that a server counts, by the name with its labels.
type Metrics map[string]float64

// Metrics reads them.
func (s *Server) Metrics() (Metrics, error) {
	text, err := get(s.admin("/metrics"))
	if err != nil {
		return nil, err
	}
	all := Metrics{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && name != "#" {
			all[name] = v
		}
	}
	return all, nil
}

// Sum adds up what has the name and all the labels.
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
next:
	for full, v := range m {
		if n, _, _ := strings.Cut(full, "{"); n != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(full, l) {
				continue next
			}
		}
		sum += v
	}
	return sum
}

// CPU is the time that the process has computed, in seconds.
func (m Metrics) CPU() float64 { return m.Sum("process_cpu_seconds_total") }

// Memory is what a process takes, in MB.
type Memory struct {
	Objects  float64 // after a garbage collection
	Live     float64 // with the stacks, which also grow and shrink with what has just been done
	Resident float64
	Peak     float64 // the most that was ever resident
}

const mb = 1 << 20

// Memory takes the least of some readings: the inventory goes on meanwhile, and each of its
// looks at the file makes some MB of garbage.
func (s *Server) Memory() (Memory, error) {
	peak, err := s.peak()
	if err != nil {
		return Memory{}, err
	}
	least := Memory{Objects: math.Inf(1), Live: math.Inf(1), Peak: peak}
	for range 8 {
		if _, err := get(s.debug("/debug/pprof/heap?gc=1")); err != nil {
			return Memory{}, err
		}
		m, err := s.Metrics()
		if err != nil {
			return Memory{}, err
		}
		objects := m.Sum("go_memstats_heap_alloc_bytes") / mb
		least.Objects = min(least.Objects, objects)
		least.Live = min(least.Live, objects+m.Sum("go_memstats_stack_inuse_bytes")/mb)
		least.Resident = m.Sum("process_resident_memory_bytes") / mb
	}
	return least, nil
}

func (s *Server) peak() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("the kernel has no VmHWM of process %d", s.PID())
}
