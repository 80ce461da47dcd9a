package charts

import (
	"context"
	"errors"
	"testing"
	"time"
)

type events = map[string]func(context.Context) error

const docs = "../../../docs/"

// TestRunbooks runs every command of the README's section on deploying and of three runbooks, and compares what it prints with
// what the page shows. Each page leaves both clusters as the next one needs them.
func TestRunbooks(t *testing.T) {
	w := begin(t)
	worker := func(name, address string) func(context.Context) error {
		return func(ctx context.Context) error { return w.join(ctx, name, address) }
	}
	for _, page := range []struct {
		path, heading string
		before        func(context.Context) error
		events        events
	}{
		{path: "../README.md", heading: "Deploying", events: events{
			"the cluster has three workers": func(ctx context.Context) error {
				return errors.Join(w.join(ctx, "worker-1", "10.0.1.11"), w.join(ctx, "worker-2", "10.0.1.12"), w.join(ctx, "worker-3", "10.0.1.13"))
			},
			"the cloud is another one": w.useEmulator,
			// A new leader removes nothing in its first window, and these pages have many leaders.
			"the windows are short": func(context.Context) error {
				return w.edit("writer.yaml", "settings:\n", "settings:\n  SHRINK_WINDOW: 2s\n")
			},
		}},
		{path: "operate/runbooks/first-run.md"},
		{path: "operate/runbooks/replace-a-node.md", before: func(ctx context.Context) error {
			return errors.Join(w.join(ctx, "worker-4", "10.0.1.14"), w.untilReady(ctx, 4))
		}, events: events{
			"the new node joins":        worker("worker-5", "10.0.1.15"),
			"the old server is deleted": func(context.Context) error { return w.workers["worker-4"].Destroy() },
		}},
		{path: "operate/runbooks/rotate-credentials.md", events: events{
			"there is a new token":     func(context.Context) error { return w.newToken("another-token") },
			"the old token is deleted": func(context.Context) error { return w.acceptToken() },
		}},
	} {
		if page.before != nil {
			w.must(page.before(t.Context()))
		}
		if !t.Run(page.path, func(t *testing.T) { w.read(t, page.path, page.heading, page.events) }) {
			return // the next page would not find what it needs
		}
	}
}

// read runs the commands of a page, or of one of its sections, and the events between them. A runbook needs the commands that
// its folder's README defines.
func (w *world) read(t *testing.T, path, heading string, events events) {
	t.Helper()
	steps, err := readPage(docs+path, heading)
	w.must(err)
	if heading == "" {
		first, err := readPage(docs+"operate/runbooks/README.md", "First")
		w.must(err)
		steps = append(first, steps...)
	}
	s, err := openShell(w.dir, w.env)
	w.must(err)
	defer func() { w.end(s.close()) }()
	happened := 0
	for _, step := range steps {
		began := time.Now()
		if step.event == "" {
			err = s.do(t.Context(), step)
		} else if event, ok := events[step.event]; ok {
			happened++
			err = event(t.Context())
		} else {
			err = errors.New("no such event in the test")
		}
		if err != nil {
			t.Fatalf("%s, line %d, %s: %v%s", path, step.line, step.event, err, w.describe())
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Logf("line %d took %s", step.line, took.Round(100*time.Millisecond))
		}
	}
	if happened != len(events) {
		t.Errorf("%s has %d events, the test %d", path, happened, len(events))
	}
}

// describe returns the state of both clusters after a failure.
func (w *world) describe() string {
	out, _ := w.try(context.WithoutCancel(w.t.Context()), `set +e
kubectl --context secured get nodes,pods,services -A
kubectl --context consuming get pods,endpointslices,events -A
kubectl --context secured -n slicefeed logs deploy/slicefeed-inventory --tail=20
kubectl --context consuming -n web logs deploy/slicefeed-writer --tail=20`)
	return "\n\nafter that:\n" + out
}
