package pair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/lab/process"
)

// Component is one of our binaries as a process that can die and come back.
type Component struct {
	Name    string
	Address netip.Addr

	dir, program, log string

	mu      sync.Mutex
	env     map[string]string
	process *process.Process // nil: not running
	last    *process.Process // the one that ran last
}

// LinkPort is where an inventory listens, at its own address.
const LinkPort = 9443

// The ports of the other listeners; debug is on loopback.
const (
	adminPort = 8080
	debugPort = 6060
)

// newComponent makes a component with a directory of its own. The later settings win; an empty
// one takes one away.
func newComponent(dir, program string, address netip.Addr, name string, settings ...map[string]string) (*Component, error) {
	h := &Component{
		Name: name, Address: address, program: program,
		dir: filepath.Join(dir, name), log: filepath.Join(dir, name+".log"),
		env: map[string]string{"ADMIN_ADDRESS": port(address, adminPort), "DEBUG_ADDRESS": debugAddress(address)},
	}
	for _, some := range settings {
		maps.Copy(h.env, some)
	}
	return h, os.MkdirAll(h.dir, 0o700)
}

// debugAddress is on loopback, where nobody else could reach it.
func debugAddress(address netip.Addr) string {
	return fmt.Sprintf("127.0.0.%d:%d", address.As4()[3], debugPort)
}

// Set changes a setting from the next start on; empty takes it away.
func (h *Component) Set(name, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.env[name] = value
}

// Use has the next start run the program of the same name in another directory.
func (h *Component) Use(dir string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.program = filepath.Join(dir, filepath.Base(h.program))
}

func (h *Component) setting(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.env[name]
}

// Env returns the process's environment, sorted. Nothing of ours is inherited but what
// a program needs to run at all: a credential that lies about here must not reach it.
func (h *Component) Env() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.environ()
}

// settings returns a copy of them.
func (h *Component) settings() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.env)
}

// environ needs mu.
func (h *Component) environ() []string {
	var env []string
	for _, name := range []string{"PATH", "TMPDIR", "GORACE", "GOCOVERDIR", "GOTRACEBACK"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range h.env {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

// Start starts the process and returns when it says that it is ready.
func (h *Component) Start(ctx context.Context) error {
	if err := h.Launch(); err != nil {
		return err
	}
	return h.Ready(ctx)
}

// Launch starts the process and returns at once.
func (h *Component) Launch() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process != nil {
		return fmt.Errorf("start %s: it runs already", h.Name)
	}
	started, err := process.Start(process.Spec{
		Name: h.Name, Path: h.program, Args: []string{"serve"}, Env: h.environ(), Dir: h.dir, Log: h.log,
	})
	if err != nil {
		return err
	}
	h.process, h.last = started, started
	return nil
}

// Ready waits until the process says that it is ready. If it ends before, or takes too
// long, the error shows the end of its log.
func (h *Component) Ready(ctx context.Context) error {
	running := h.running()
	if running == nil {
		return fmt.Errorf("wait for %s: it does not run", h.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond) // a new process tells nobody that it is ready
	defer tick.Stop()
	for {
		reason := h.Check(ctx, "/readyz")
		if reason == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-running.Done():
			if err := running.Wait(); err != nil {
				return err
			}
			return fmt.Errorf("%s: it ended with exit code 0%s", h.Name, running.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w%s", h.Name, reason, running.Tail())
		}
	}
}

// Check asks one of the probe paths, /livez or /readyz; nil means that it says ok.
func (h *Component) Check(ctx context.Context, path string) error {
	_, err := h.Get(ctx, path)
	return err
}

var probe = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Get reads a path of the admin listener, such as /metrics.
func (h *Component) Get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+port(h.Address, adminPort)+path, nil)
	if err != nil {
		return "", err
	}
	response, err := probe.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// Running reports whether the process was started and has not ended.
func (h *Component) Running() bool {
	running := h.running()
	if running == nil {
		return false
	}
	select {
	case <-running.Done():
		return false
	default:
		return true
	}
}

// PID returns the process ID; 0: it does not run.
func (h *Component) PID() int {
	if running := h.running(); running != nil {
		return running.PID()
	}
	return 0
}

// Kill ends the process as a crash of its machine would (SIGKILL), and returns when it is
// gone. That it does not run is no error; that it had ended by itself is one.
func (h *Component) Kill() error { return h.end(0) }

// Terminate ends the process in order (SIGTERM), and kills it after grace.
func (h *Component) Terminate(grace time.Duration) error {
	if grace <= 0 {
		return errors.New("terminate: no time given")
	}
	return h.end(grace)
}

func (h *Component) end(grace time.Duration) error {
	h.mu.Lock()
	running := h.process
	h.process = nil
	h.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Stop(grace)
}

// Signal sends a signal: SIGSTOP freezes the process, SIGCONT lets it go on.
func (h *Component) Signal(sig os.Signal) error {
	running := h.running()
	if running == nil {
		return fmt.Errorf("signal %s: it does not run", h.Name)
	}
	return running.Signal(sig)
}

// Wait waits until the process has ended and says how.
func (h *Component) Wait() error {
	running := h.running()
	if running == nil {
		return fmt.Errorf("wait for %s: it does not run", h.Name)
	}
	return running.Wait()
}

// AdminAddress is where /metrics, /livez and /readyz are.
func (h *Component) AdminAddress() string { return port(h.Address, adminPort) }

// DebugAddress is where /statusz and /debug/pprof are, on loopback.
func (h *Component) DebugAddress() string { return debugAddress(h.Address) }

// Tail returns the last lines of the log, also when the process has ended.
func (h *Component) Tail() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		return "it never ran"
	}
	return h.last.Tail()
}

// Log returns the path of the file with all that the component has ever written.
func (h *Component) Log() string { return h.log }

// Dir returns the directory with the component's keys and credentials.
func (h *Component) Dir() string { return h.dir }

func (h *Component) running() *process.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.process
}
