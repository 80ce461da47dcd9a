package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// StopAPIServer kills the API server: its connections end, its port refuses. The data
// stays.
func (cp *ControlPlane) StopAPIServer() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.end(APIServer)
}

// APIServerChanged returns when the API server was last started or killed.
func (cp *ControlPlane) APIServerChanged() time.Time {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.changed[APIServer]
}

// StopEtcd kills etcd. The API server goes on, and can neither write nor answer what needs a
// quorum. The data stays.
func (cp *ControlPlane) StopEtcd() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.end(Etcd)
}

// StartEtcd starts etcd again with the same data, and returns when the API server, if it runs,
// answers.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.processes[Etcd] != nil {
		return fmt.Errorf("start etcd of %s: it runs already", cp.name)
	}
	err := cp.launch(Etcd, cp.options.Programs.Etcd, cp.etcdArgs())
	if err == nil && cp.processes[APIServer] != nil {
		err = cp.waitReady(ctx)
	}
	if err != nil {
		return fmt.Errorf("start etcd of %s: %w", cp.name, err)
	}
	return nil
}

// Backup copies etcd's data. Both processes are stopped meanwhile, and started again. restore puts the copy back in the
// same way, as a restore of etcd without new revisions does.
func (cp *ControlPlane) Backup(ctx context.Context) (restore func(context.Context) error, err error) {
	data, backup := filepath.Join(cp.dir, "etcd"), filepath.Join(cp.dir, "backup")
	err = cp.whileStopped(ctx, func() error { return os.CopyFS(backup, os.DirFS(data)) })
	return func(ctx context.Context) error {
		return cp.whileStopped(ctx, func() error { return errors.Join(os.RemoveAll(data), os.Rename(backup, data)) })
	}, err
}

func (cp *ControlPlane) whileStopped(ctx context.Context, do func() error) error {
	if err := errors.Join(cp.StopAPIServer(), cp.StopEtcd()); err != nil {
		return err
	}
	if err := errors.Join(do(), cp.StartEtcd(ctx)); err != nil {
		return err
	}
	return cp.StartAPIServer(ctx)
}

// Compact makes etcd forget all that was before its present revision, as it does each five
// minutes in production: whoever wants to go on from before has to read anew.
func (cp *ControlPlane) Compact(ctx context.Context) error {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := cp.askEtcd(ctx, "range", map[string]any{"key": "AA==", "limit": 1}, &now); err != nil { // any key
		return fmt.Errorf("ask etcd of %s for its revision: %w", cp.name, err)
	}
	if err := cp.askEtcd(ctx, "compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, nil); err != nil {
		return fmt.Errorf("compact etcd of %s: %w", cp.name, err)
	}
	return nil
}

// askEtcd asks by etcd's JSON gateway: its own client would bring all of etcd's modules.
func (cp *ControlPlane) askEtcd(ctx context.Context, what string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cp.etcdURL(etcdPort)+"/v3/kv/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	raw, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s: %s", response.Status, raw)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(raw, answer)
}

// StartAPIServer starts the API server again, with the same address, keys and data, and
// returns when it answers.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.processes[APIServer] != nil {
		return fmt.Errorf("start the API server of %s: it runs already", cp.name)
	}
	if cp.processes[Etcd] == nil {
		return fmt.Errorf("start the API server of %s: its etcd does not run", cp.name)
	}
	if err := cp.startAPIServer(ctx); err != nil {
		return fmt.Errorf("start the API server of %s: %w", cp.name, err)
	}
	return nil
}

// Signal sends a signal to one of the processes: syscall.SIGSTOP freezes it, SIGCONT
// lets it go on.
func (cp *ControlPlane) Signal(program Program, sig os.Signal) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	p := cp.processes[program]
	if p == nil {
		return fmt.Errorf("signal %s of %s: it does not run", program, cp.name)
	}
	return p.Signal(sig)
}

// Stop kills both processes and removes the directory if Start made it. It is safe to
// call it twice.
func (cp *ControlPlane) Stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	err := errors.Join(cp.end(APIServer), cp.end(Etcd))
	if cp.ownDir {
		err = errors.Join(err, os.RemoveAll(cp.dir))
	}
	return err
}

// end needs mu. There is nothing to be saved, so nobody is asked to end in order. That
// one has ended by itself before is an error.
func (cp *ControlPlane) end(program Program) error {
	p := cp.processes[program]
	if p == nil {
		return nil
	}
	delete(cp.processes, program)
	err := p.Stop(0)
	cp.changed[program] = time.Now()
	return err
}

// waitReady needs mu. It returns when the API server says it is ready and has the
// default namespace, or with what it printed when it ends before.
func (cp *ControlPlane) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(cp.admin)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	server, store := cp.processes[APIServer], cp.processes[Etcd]
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("it was never asked")
	for {
		err := cp.answers(ctx, client, "/readyz", "/api/v1/namespaces/default")
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // that our time was up says nothing about the server
			last = err
		}
		select {
		case <-tick.C:
		case <-server.Done():
			return ended(server.Wait())
		case <-store.Done():
			return ended(store.Wait())
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w%s", last, server.Tail())
		}
	}
}

// failedChecks keeps of a /readyz answer the lines about what is not ready.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "[+]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	return strings.Join(failed, "; ")
}

func ended(err error) error {
	if err == nil {
		return errors.New("it ended with exit code 0")
	}
	return err
}

func (cp *ControlPlane) answers(ctx context.Context, client *http.Client, paths ...string) error {
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, cp.url()+path, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, 16<<10))
		_ = response.Body.Close()
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", path, response.Status, failedChecks(string(body)))
		}
	}
	return nil
}
