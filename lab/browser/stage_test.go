package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestMain(m *testing.M) {
	if os.Getenv("SLICEFEED_VERIFY") == "" {
		os.Exit(m.Run()) // without a namespace: everything is skipped
	}
	pair.Main(m)
}

const patience = 3 * time.Minute

// troubled is a pair that has trouble of several kinds.
func troubled(t *testing.T) *pair.Pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	programs, err := controlplane.Build(ctx, os.Stderr)
	must(err)
	p, err := pair.Start(ctx, pair.Options{
		Programs: programs, Dir: t.TempDir(), Writers: 2, Cloud: pair.CloudOptions{OtherServers: 20},
		Inventory: map[string]string{"IONOS_POLL_INTERVAL": "2s", "IONOS_REQUEST_BUDGET": "600", "EXPORT_LABELS": "pool"},
		Writer:    map[string]string{"SHRINK_WINDOW": "10m"}, // so that what it holds back is held back for the whole test
	})
	must(err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	var workers []*pair.Worker
	for n, name := range []string{"standardnodes-3xk7a", "standardnodes-9pqw2", "standardnodes-m4c6e", "standardnodes-t8z5b", "standardnodes-zz1d0"} {
		options := pair.WorkerOptions{
			Name:    name,
			Address: netip.AddrFrom4([4]byte{10, 0, 1, byte(11 + n)}),
			Labels:  map[string]string{"pool": "blue"},
		}
		if n == 0 {
			options.Labels["pool"] = "stable"
		}
		w, err := p.AddWorker(options)
		must(err)
		must(w.Join(ctx))
		workers = append(workers, w)
	}
	late, err := p.AddWorker(
		pair.WorkerOptions{Name: "standardnodes-late1", Address: netip.MustParseAddr("10.0.1.31"), NICAfter: time.Hour},
	)
	must(err)
	must(late.Join(ctx))
	_, err = p.SecuredClient().CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "control-plane-1", Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""},
	}}, metav1.CreateOptions{})
	must(err)

	service(ctx, t, p, "api", func(s *corev1.Service) { s.Annotations["slicefeed.dev/node-selector"] = "pool=stable" })
	service(ctx, t, p, "cart", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "cart"} })
	service(ctx, t, p, "mail", func(s *corev1.Service) { s.Annotations["slicefeed.dev/paused"] = "true" })
	service(ctx, t, p, "search", func(s *corev1.Service) { s.Annotations["slicefeed.dev/node-selector"] = "pool=gpu" })
	must(p.StartComponents(ctx))
	_, err = p.WaitSlices(
		ctx,
		pair.Are(pair.Ready, workers[0].Address, workers[1].Address, workers[2].Address, workers[3].Address, workers[4].Address),
	)
	must(err)
	must(workers[1].Set(backend.Refuse))
	_, err = p.WaitSlices(ctx, pair.Are(pair.Out, workers[1].Address))
	must(err)
	must(workers[2].Drain(ctx, true))
	must(workers[3].SetReady(ctx, false))
	return p
}

// service makes a Service that is ours by its label.
func service(ctx context.Context, t *testing.T, p *pair.Pair, name string, change func(*corev1.Service)) {
	t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pair.Namespace,
			Name:        name,
			Labels:      map[string]string{"slicefeed.dev/class": "default"},
			Annotations: map[string]string{},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(pair.NodePort),
		}}},
	}
	change(s)
	if _, err := p.ConsumingClient().CoreV1().Services(pair.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// statusz returns the URL of a component's page.
func statusz(h *pair.Component) string {
	for _, line := range h.Env() {
		if address, ok := strings.CutPrefix(line, "DEBUG_ADDRESS="); ok {
			return "http://" + address + "/statusz"
		}
	}
	return ""
}

// says waits until a component's page contains all of this.
func says(t *testing.T, h *pair.Component, all ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond) // a page tells nobody that it has changed
	defer tick.Stop()
	for {
		page, err := get(t.Context(), statusz(h))
		var missing []string
		for _, one := range all {
			if !strings.Contains(page, one) {
				missing = append(missing, one)
			}
		}
		if err == nil && missing == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s does not say %q (%v):\n%s", h.Name, missing, err, page)
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), errors.Join(err, response.Body.Close())
}
