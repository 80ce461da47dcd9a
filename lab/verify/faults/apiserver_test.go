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
	r.must(r.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).
		DeleteCollection(r.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// What webhooks reject.
var (
	sliceWrites = admissionv1.Rule{
		APIGroups:   []string{"discovery.k8s.io"},
		APIVersions: []string{"*"},
		Resources:   []string{"endpointslices"},
	}
)

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
		webhook.Rules = append(webhook.Rules,
			admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.OperationAll}, Rule: rule})
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
