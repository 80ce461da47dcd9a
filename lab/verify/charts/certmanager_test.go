package charts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/charts"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/client"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/lab/process"
)

// managers are the programs that issue and distribute certificates.
var managers = []string{"cert-manager", "trust-manager"}

// TestCertManagerRenewsCertificatesUnderTraffic runs what docs/deploy/certificates.md says of cert-manager. The
// controllers of cert-manager and trust-manager run in both clusters, their webhooks are not registered.
func TestCertManagerRenewsCertificatesUnderTraffic(t *testing.T) {
	w := begin(t)
	var first []byte // the certificate that the inventory serves before it is renewed
	var clients *clients
	var trusted, signed map[string]int // reloads of each Pod before there is another CA
	w.read(t, "deploy/certificates.md", "With cert-manager", events{
		"cert-manager and trust-manager run in both clusters": w.runCertManagers,
		"the README's values, its token and its Service are there": func(ctx context.Context) error {
			return errors.Join(w.writeREADMEFiles(ctx), w.useEmulator(ctx),
				w.join(ctx, "worker-1", "10.0.1.11"), w.join(ctx, "worker-2", "10.0.1.12"))
		},
		"clients use the Service": func(ctx context.Context) (err error) {
			if clients, err = w.useService(ctx); err == nil {
				first, err = w.waitServed(ctx)
			}
			return err
		},
		"the inventory serves the renewed certificate": func(ctx context.Context) error {
			renewed, err := w.waitServed(ctx)
			if err == nil && bytes.Equal(renewed, first) {
				err = errors.New("the certificate is the first one")
			}
			if err == nil {
				trusted, err = w.countReloads(ctx, secured, peerCAs)
			}
			if err == nil {
				signed, err = w.countReloads(ctx, consuming, certificate)
			}
			return err
		},
		"each inventory trusts both CAs": func(ctx context.Context) error {
			return w.waitReloaded(ctx, secured, peerCAs, trusted)
		},
		"each writer has a certificate of the new CA": func(ctx context.Context) error {
			return w.waitReloaded(ctx, consuming, certificate, signed)
		},
		"a worker joins, and no request was lost": func(ctx context.Context) error {
			err := errors.Join(w.join(ctx, "worker-3", "10.0.1.13"), w.untilReady(ctx, 3), clients.stop())
			t.Logf("%d requests", clients.Tally().Requests)
			return err
		},
	})
}

// runCertManagers runs the controllers in both clusters.
func (w *world) runCertManagers(ctx context.Context) error {
	definitions, err := charts.Definitions(ctx)
	if err != nil {
		return err
	}
	programs, err := controlplane.BuildPrograms(ctx, os.Stderr, managers...)
	if err != nil {
		return err
	}
	ca, err := pki.NewCA("webhook")
	if err != nil {
		return err
	}
	webhook, err := ca.Issue(pki.Cert{CommonName: "webhook", Usage: pki.Server})
	if err != nil {
		return err
	}
	for i, plane := range []*controlplane.ControlPlane{w.Secured, w.Consuming} {
		if err := plane.Apply(ctx, definitions...); err != nil {
			return err
		}
		if _, err := w.try(ctx, "kubectl --context "+plane.Name()+" wait crd --all --for=condition=Established"); err != nil {
			return err
		}
		if _, _, err := webhook.Write(plane.Dir(), "tls"); err != nil { // trust-manager does not start without one
			return err
		}
		for n, args := range [][]string{nil, {
			"--leader-elect=false", "--metrics-port=0", "--readiness-probe-port=0",
			"--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", 10250+i), "--webhook-certificate-dir=" + plane.Dir(),
		}} {
			p, err := process.Start(process.Spec{
				Name: plane.Name() + "'s " + managers[n], Path: programs[n], Args: append(args, "--kubeconfig="+plane.AdminKubeconfig()),
				Log: filepath.Join(plane.Dir(), managers[n]+".log"),
			})
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { w.end(p.Stop(0)) })
		}
	}
	return nil
}

// writeREADMEFiles runs those commands of the README that write the values and create the token and the Service.
func (w *world) writeREADMEFiles(ctx context.Context) error {
	steps, err := readPage(docs+"../README.md", "Deploying")
	ran := 0
	for _, step := range steps {
		if strings.Contains(step.command, "<<'END'") {
			ran++
			_, failed := w.try(ctx, step.command)
			err = errors.Join(err, failed)
		}
	}
	if ran != 3 {
		err = errors.Join(err, fmt.Errorf("the README has %d such commands, want 3", ran))
	}
	return err
}

// clients use the Service until stop.
type clients struct {
	*client.Client

	cancel context.CancelFunc
	done   chan error
}

// useService starts clients once all endpoints are ready.
func (w *world) useService(ctx context.Context) (*clients, error) {
	if err := w.untilReady(ctx, 2); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	c := &clients{Client: w.NewClient(10 * time.Millisecond), cancel: cancel, done: make(chan error, 1)}
	go func() { c.done <- c.Run(running) }() // received by stop; ends with the test at the latest
	return c, nil
}

// stop wants every request to have succeeded.
func (c *clients) stop() error {
	c.cancel()
	err := <-c.done
	tally := c.Tally()
	if tally.Requests < 1000 || tally.OK != tally.Requests {
		err = errors.Join(err, fmt.Errorf("the clients' requests: %+v", tally))
	}
	return err
}

// untilReady waits until the Service's endpoints are the workers 1 to n, all ready.
func (w *world) untilReady(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, perStep)
	defer cancel()
	var addresses []netip.Addr
	for i := range n {
		addresses = append(addresses, w.workers[fmt.Sprintf("worker-%d", i+1)].Address)
	}
	_, err := w.WaitSlices(ctx, pair.AreJust(pair.Ready, addresses...))
	return err
}

// poll calls a function until it succeeds. Nothing reports that a file was reloaded.
func poll(ctx context.Context, call func(context.Context) error) error {
	var last error
	ended := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, perStep, true, func(ctx context.Context) (bool, error) {
		last = call(ctx)
		return last == nil, nil
	})
	return cmp.Or(last, ended)
}

// The files that components reload, as their logs name them.
const (
	certificate = "cert"
	peerCAs     = "ca"
)

// countReloads counts how often each Pod of a component has reloaded a file that had changed.
func (w *world) countReloads(ctx context.Context, cluster, file string) (map[string]int, error) {
	counts := map[string]int{}
	client := map[string]kubernetes.Interface{secured: w.SecuredClient(), consuming: w.ConsumingClient()}[cluster]
	for _, p := range w.pods(cluster) {
		log, err := client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		counts[p.Name] = bytes.Count(log, fmt.Appendf(nil, `"file":%q,"changed":true`, file))
	}
	return counts, nil
}

// waitReloaded waits until each Pod has reloaded a file once more.
func (w *world) waitReloaded(ctx context.Context, cluster, file string, before map[string]int) error {
	return poll(ctx, func(ctx context.Context) error {
		counts, err := w.countReloads(ctx, cluster, file)
		for pod, count := range counts {
			if count <= before[pod] {
				err = errors.Join(err, fmt.Errorf("%s has not reloaded its %s", pod, file))
			}
		}
		return err
	})
}

// waitServed waits until all replicas of the inventory serve the certificate of their Secret, and returns it.
func (w *world) waitServed(ctx context.Context) (served []byte, err error) {
	err = poll(ctx, func(ctx context.Context) (err error) {
		served, err = w.served(ctx)
		return err
	})
	return served, err
}

func (w *world) served(ctx context.Context) ([]byte, error) {
	ca, err := os.ReadFile(filepath.Join(w.dir, "inventory-ca.crt"))
	if err != nil {
		return nil, err
	}
	secret, err := w.SecuredClient().CoreV1().Secrets(inventoryNamespace).Get(ctx, "slicefeed-inventory-tls", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	issued, _ := pem.Decode(secret.Data["tls.crt"])
	if issued == nil {
		return nil, errors.New("the Secret has no certificate")
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: inventoryHost, NextProtos: []string{"h2"}}
	config.RootCAs.AppendCertsFromPEM(ca)
	for range 16 { // the load balancer chooses a replica at random
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", pair.InventoryAddress.String()+":9443")
		if err != nil {
			return nil, err
		}
		served := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw
		if err := conn.Close(); err != nil {
			return nil, err
		}
		if !bytes.Equal(served, issued.Bytes) {
			return nil, errors.New("another certificate is served")
		}
	}
	return issued.Bytes, nil
}
