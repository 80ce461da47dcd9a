package faults

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// What webhooks are in the way of, beside slices.
var leases = admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"leases"}}

var slicesOnly = admissionv1.Rule{APIGroups: []string{"discovery.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"endpointslices"}}

// webhookDown has an admission webhook that nobody answers for stand before every write of a slice: the
// API server answers 500.
func webhookDown() Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		nobody := netip.AddrPortFrom(edgesAddress, 1)
		return s.admit(ctx, undo, nobody, nil, slicesOnly)
	})
}

// webhookAnswers has an admission webhook refuse every write of a slice, and of what else is told: the
// real API server then answers with that status, and with Retry-After if that is not 0.
func webhookAnswers(status, retryAfter int32, further ...admissionv1.Rule) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		at, ca, err := refuser(undo, status, retryAfter)
		if err != nil {
			return err
		}
		return s.admit(ctx, undo, at, ca.PEM(), append(further, slicesOnly)...)
	})
}

// refuser is a webhook that refuses everything, until the lift.
func refuser(undo *steps, status, retryAfter int32) (netip.AddrPort, *pki.CA, error) {
	none := netip.AddrPort{}
	ca, err := pki.NewCA("webhook's")
	if err != nil {
		return none, nil, err
	}
	issued, err := ca.Issue(pki.Cert{CommonName: "webhook", Usage: pki.Server, IPs: []netip.Addr{edgesAddress}})
	if err != nil {
		return none, nil, err
	}
	leaf, err := tls.X509KeyPair(issued.CertPEM, issued.KeyPEM)
	if err != nil {
		return none, nil, err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(edgesAddress, 0).String())
	if err != nil {
		return none, nil, err
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review admissionreviewv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(w, "want an AdmissionReview", http.StatusBadRequest)
				return
			}
			review.Response = &admissionreviewv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{
				Code: status, Message: "the webhook was told to refuse", Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter},
			}}
			review.Request = nil
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(review) // an error means that the API server has gone
		}),
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = server.ServeTLS(listener, "", "") // it ends with Close, and then says no more than that
	}()
	undo.then(func(context.Context) error {
		err := server.Close()
		<-over
		return err
	})
	at, err := netip.ParseAddrPort(listener.Addr().String())
	return at, ca, err
}

// admit puts a webhook in the way of writes in the consuming cluster, and returns when it is.
func (s *Scene) admit(ctx context.Context, undo *steps, at netip.AddrPort, ca []byte, writes ...admissionv1.Rule) error {
	const name = "faults.example.org"
	hooks := s.ConsumingClient().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	url, fail, no, second := "https://"+at.String()+"/", admissionv1.Fail, admissionv1.SideEffectClassNone, int32(1)
	one := admissionv1.ValidatingWebhook{
		Name: name, ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: ca}, FailurePolicy: &fail, SideEffects: &no,
		TimeoutSeconds: &second, AdmissionReviewVersions: []string{"v1"},
	}
	for _, rule := range writes {
		one.Rules = append(one.Rules, admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.OperationAll}, Rule: rule})
	}
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.ValidatingWebhook{one}}
	if _, err := hooks.Create(ctx, hook, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("put a webhook in the way: %w", err)
	}
	slices := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	works := func(ctx context.Context) func() bool {
		return func() bool {
			slice := s.Now()[0].DeepCopy()
			slice.ResourceVersion = ""
			ctx, cancel := context.WithTimeout(ctx, time.Second) // a client's own patience with a 429 is longer
			defer cancel()
			_, err := slices.Update(ctx, slice, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil
		}
	}
	undo.then(func(ctx context.Context) error {
		if err := hooks.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return eventually(ctx, "writes are let through", works(ctx))
	})
	return eventually(ctx, "writes are refused", func() bool { return !works(ctx)() })
}
