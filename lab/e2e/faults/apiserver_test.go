package faults

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

const (
	securedAPI   = "secured API server"
	consumingAPI = "consuming API server"
	otherClients = "other clients of the consuming API"
)

// controlPlane is one of the two.
type controlPlane func(*env) *controlplane.ControlPlane

func secured(e *env) *controlplane.ControlPlane   { return e.Secured }
func consuming(e *env) *controlplane.ControlPlane { return e.Consuming }

func apiServerKilled(at controlPlane) fault {
	return func(r *run) {
		r.onEnd(at(r.env).StartAPIServer)
		r.must(at(r.env).StopAPIServer())
	}
}

// etcdKilled leaves the API server without etcd.
func etcdKilled(at controlPlane) fault {
	return func(r *run) {
		r.onEnd(at(r.env).StartEtcd)
		r.must(at(r.env).StopEtcd())
	}
}

// programFrozen stops a process of a control plane, with its connections open.
func programFrozen(at controlPlane, program controlplane.Program) fault {
	return func(r *run) {
		r.onEnd(func(context.Context) error { return at(r.env).Signal(program, syscall.SIGCONT) })
		r.must(at(r.env).Signal(program, syscall.SIGSTOP))
	}
}

// compacted interrupts watches while etcd forgets the revisions from which they would continue and the API server loses
// its cache: they get 410 Gone.
func compacted(at controlPlane, connections where) fault {
	return func(r *run) {
		refused(connections)(r)
		r.onEnd(func(ctx context.Context) error {
			if err := at(r.env).Compact(ctx); err != nil {
				return err
			}
			if err := at(r.env).StopAPIServer(); err != nil {
				return err
			}
			return at(r.env).StartAPIServer(ctx)
		})
	}
}

// forbidden takes the permission to write slices from the writers.
func forbidden(r *run) {
	bindings := r.ConsumingClient().RbacV1().RoleBindings(pair.Namespace)
	all, err := bindings.List(r.ctx, metav1.ListOptions{})
	r.must(err)
	for _, binding := range all.Items {
		if binding.Name == "slicefeed-writer-lease" {
			continue
		}
		r.must(bindings.Delete(r.ctx, binding.Name, metav1.DeleteOptions{}))
		r.onEnd(func(ctx context.Context) error {
			binding.ResourceVersion, binding.UID = "", ""
			_, err := bindings.Create(ctx, &binding, metav1.CreateOptions{})
			return err
		})
	}
}

// unrelatedNodeChanges changes every Node about a hundred times a second, in what does not concern us.
func unrelatedNodeChanges(r *run) {
	nodes, n, all := r.SecuredClient().CoreV1().Nodes(), 0, r.nodesOf(first)
	r.repeat(func(ctx context.Context) error {
		for _, node := range all {
			n++
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"storm.example.org/beat":"%d"}}}`, n)
			_, err := nodes.Patch(ctx, node.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) { // it was deleted meanwhile
				return err
			}
		}
		wait(ctx, 5*time.Millisecond)
		return nil
	})
}

// readinessFlips changes a Node's readiness twenty times a second, while its backend answers.
func readinessFlips(r *run) {
	n := r.nodesOf(first)[3]
	r.onEnd(func(ctx context.Context) error { return n.SetReady(ctx, true) })
	r.repeat(func(ctx context.Context) error {
		for _, ready := range []bool{false, true} {
			if err := n.SetReady(ctx, ready); err != nil {
				return err
			}
			wait(ctx, 25*time.Millisecond)
		}
		return nil
	})
}

// sliceEdited has another client set an endpoint to not ready four times a second.
func sliceEdited(r *run) {
	slices := r.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	no := false
	r.repeat(func(ctx context.Context) error {
		now := r.Now()
		if len(now) == 0 || len(now[0].Endpoints) == 0 {
			return errors.New("there is no endpoint to edit")
		}
		slice := now[0].DeepCopy()
		slice.ResourceVersion = ""
		slice.Endpoints[0].Conditions.Ready = &no
		_, err := slices.Update(ctx, slice, metav1.UpdateOptions{FieldManager: "somebody"})
		wait(ctx, 250*time.Millisecond)
		return err
	})
}

// slicesDeleted has another client delete our slices, once.
func slicesDeleted(r *run) {
	r.must(
		r.ConsumingClient().
			DiscoveryV1().
			EndpointSlices(pair.Namespace).
			DeleteCollection(r.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	)
}

// What webhooks reject.
var (
	sliceWrites = admissionv1.Rule{
		APIGroups:   []string{"discovery.k8s.io"},
		APIVersions: []string{"*"},
		Resources:   []string{"endpointslices"},
	}
	leaseWrites = admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"leases"}}
)

// webhookUnreachable has the API server answer 500 to every write of a slice.
func webhookUnreachable(r *run) { r.addWebhook(netip.AddrPortFrom(proxyAddress, 1), nil, sliceWrites) }

// webhookAnswers has a webhook reject writes: the real API server answers with that status, and with Retry-After if that
// is not 0.
func webhookAnswers(status, retryAfter int32, writes ...admissionv1.Rule) fault {
	return func(r *run) {
		ca, err := pki.NewCA("webhook's")
		r.must(err)
		issued, err := ca.Issue(pki.Cert{CommonName: "webhook", Usage: pki.Server, IPs: []netip.Addr{proxyAddress}})
		r.must(err)
		leaf, err := tls.X509KeyPair(issued.CertPEM, issued.KeyPEM)
		r.must(err)
		listener, err := net.Listen("tcp", netip.AddrPortFrom(proxyAddress, 0).String())
		r.must(err)
		server := &http.Server{
			ReadHeaderTimeout: time.Minute,
			TLSConfig:         &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12},
			Handler: rejecting(
				metav1.Status{Code: status, Message: "rejected by the test", Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter}},
			),
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.ServeTLS(listener, "", "") // Close ends it, and then the error says only that
		}()
		r.onEnd(func(context.Context) error {
			err := server.Close()
			<-done
			return err
		})
		r.addWebhook(netip.MustParseAddrPort(listener.Addr().String()), ca.PEM(), writes...)
	}
}

func rejecting(result metav1.Status) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionreviewv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "want an AdmissionReview", http.StatusBadRequest)
			return
		}
		review.Response = &admissionreviewv1.AdmissionResponse{UID: review.Request.UID, Result: &result}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	})
}

// addWebhook returns when the consuming API server rejects writes of slices because of it.
func (r *run) addWebhook(at netip.AddrPort, ca []byte, writes ...admissionv1.Rule) {
	const name = "faults.example.org"
	hooks := r.ConsumingClient().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	url, fail, none, second := "https://"+at.String()+"/", admissionv1.Fail, admissionv1.SideEffectClassNone, int32(1)
	webhook := admissionv1.ValidatingWebhook{
		Name: name, ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: ca}, FailurePolicy: &fail, SideEffects: &none,
		TimeoutSeconds: &second, AdmissionReviewVersions: []string{"v1"},
	}
	for _, rule := range writes {
		webhook.Rules = append(
			webhook.Rules,
			admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.OperationAll}, Rule: rule},
		)
	}
	config := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks:   []admissionv1.ValidatingWebhook{webhook},
	}
	_, err := hooks.Create(r.ctx, config, metav1.CreateOptions{})
	r.must(err)
	slices := r.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	allowed := func() bool {
		slice := r.Now()[0].DeepCopy()
		slice.ResourceVersion = ""
		ctx, cancel := context.WithTimeout(r.ctx, time.Second) // a client itself would wait longer after a 429
		defer cancel()
		_, err := slices.Update(ctx, slice, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	}
	r.onEnd(func(ctx context.Context) error {
		if err := hooks.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return eventually(ctx, "writes are allowed", allowed)
	})
	r.must(eventually(r.ctx, "writes are rejected", func() bool { return !allowed() }))
}

func apiServerRows() []row {
	const (
		relisted = 40 * time.Second // client-go waits up to 30 s between attempts
		written  = 15 * time.Second // a writer, between two attempts
		led      = takeover + written
	)
	frozenFor := 5 * time.Second
	return []row{
		{kind: securedAPI, fault: "killed and started again", inject: apiServerKilled(secured), correctAfter: undisturbed},
		{
			kind:          securedAPI,
			fault:         "frozen for 5 s",
			inject:        programFrozen(secured, controlplane.APIServer),
			during:        backendDies,
			lasts:         frozenFor,
			correctDuring: detected,
			correctAfter:  written,
		},
		{
			kind:          securedAPI,
			fault:         "killed and started again",
			inject:        apiServerKilled(secured),
			during:        backendDies,
			correctDuring: detected,
			correctAfter:  relisted,
			short:         true,
		},
		{
			kind:          securedAPI,
			fault:         "etcd frozen",
			inject:        programFrozen(secured, controlplane.Etcd),
			during:        backendDies,
			lasts:         8 * time.Second,
			correctDuring: detected,
			correctAfter:  written,
		},
		{
			kind:         securedAPI,
			fault:        "etcd killed and started again",
			inject:       etcdKilled(secured),
			lasts:        4 * time.Second,
			correctAfter: undisturbed,
		},
		{
			kind:         securedAPI,
			fault:        "etcd compacted behind the watch (410 Gone)",
			inject:       compacted(secured, toSecured),
			during:       replaced,
			correctAfter: relisted,
		},
		{
			kind:         consumingAPI,
			fault:        "killed and started again",
			inject:       apiServerKilled(consuming),
			during:       joins,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumingAPI,
			fault:        "killed and started again",
			inject:       apiServerKilled(consuming),
			during:       dies,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind: consumingAPI, fault: "frozen for 5 s", inject: programFrozen(consuming, controlplane.APIServer), during: joins,
			lasts: frozenFor, correctAfter: written, noWrites: true, takeover: written,
		},
		{
			kind:         consumingAPI,
			fault:        "frozen for longer than the Lease",
			inject:       programFrozen(consuming, controlplane.APIServer),
			during:       deleted,
			lasts:        14 * time.Second,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumingAPI,
			fault:        "etcd frozen",
			inject:       programFrozen(consuming, controlplane.Etcd),
			during:       replaced,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumingAPI,
			fault:        "etcd killed and started again",
			inject:       etcdKilled(consuming),
			during:       joins,
			lasts:        4 * time.Second,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumingAPI,
			fault:        "etcd compacted behind the watches (410 Gone)",
			inject:       compacted(consuming, toConsuming(bothWriters)),
			during:       replaced,
			correctAfter: relisted,
			noWrites:     true,
			takeover:     relisted,
		},
		{
			kind:         consumingAPI,
			fault:        "500 to each write of a slice, by a webhook that is unreachable",
			inject:       webhookUnreachable,
			during:       replaced,
			correctAfter: written,
			noWrites:     true,
			takeover:     written,
		},
		{
			kind:         consumingAPI,
			fault:        "429 with Retry-After: 2 to each write of a slice",
			inject:       webhookAnswers(http.StatusTooManyRequests, 2, sliceWrites),
			during:       joins,
			lasts:        5 * time.Second,
			correctAfter: written,
			noWrites:     true,
			takeover:     written,
			short:        true,
		},
		{
			kind:         consumingAPI,
			fault:        "429 with Retry-After: 2 to each write of a slice or the Lease",
			inject:       webhookAnswers(http.StatusTooManyRequests, 2, sliceWrites, leaseWrites),
			during:       drains,
			lasts:        14 * time.Second,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumingAPI,
			fault:        "503 to each write of a slice",
			inject:       webhookAnswers(http.StatusServiceUnavailable, 0, sliceWrites),
			during:       replaced,
			correctAfter: written,
			noWrites:     true,
			takeover:     written,
		},
		{
			kind: consumingAPI, fault: "403 to each write of a slice: permission removed", inject: forbidden, during: dies,
			lasts: 4 * time.Second, correctAfter: relisted, noWrites: true, takeover: relisted,
		},
		{
			kind:          securedAPI,
			fault:         "a Node changes its readiness forty times a second",
			inject:        readinessFlips,
			during:        joins,
			correctDuring: undisturbed,
			correctAfter:  undisturbed,
		},
		{
			kind:          securedAPI,
			fault:         "each Node changes about a hundred times a second in what does not concern us",
			inject:        unrelatedNodeChanges,
			during:        replaced,
			correctDuring: undisturbed + 2*time.Second,
			correctAfter:  undisturbed,
		},
		{
			kind:         otherClients,
			fault:        "one sets an endpoint to not ready four times a second",
			inject:       sliceEdited,
			lasts:        3 * time.Second,
			correctAfter: 20 * time.Second,
			extraWrites:  12,
		},
		{
			kind:          otherClients,
			fault:         "one deletes our slices",
			inject:        slicesDeleted,
			during:        joins,
			correctDuring: undisturbed,
			correctAfter:  undisturbed,
			extraWrites:   2,
			short:         true,
			whyLost:       "until the slice is created again, some milliseconds later, there is none",
		},
	}
}
