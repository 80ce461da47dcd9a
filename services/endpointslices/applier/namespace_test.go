package applier

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// terminating is what the API server's admission plugin NamespaceLifecycle answers to a create.
func terminating(resource schema.GroupResource, name string) *apierrors.StatusError {
	err := apierrors.NewForbidden(
		resource,
		name,
		errors.New("unable to create new content in namespace web because it is being terminated"),
	)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: corev1.NamespaceTerminatingCause, Message: "namespace web is being terminated", Field: "metadata.namespace",
	}}
	return err
}

func answersWith(err *apierrors.StatusError) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, nil
		}
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(err.ErrStatus.Code))
		status := err.ErrStatus
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		_ = json.NewEncoder(w).Encode(status)
		answer := w.Result()
		answer.Request = r
		return answer, nil
	}
}

func TestWriteInNamespaceThatIsBeingDeletedIsQuiet(t *testing.T) {
	for name, answer := range map[string]*apierrors.StatusError{
		"it is being deleted": terminating(discoveryv1.Resource("endpointslices"), "shop-nodes"),
		"it is gone":          apierrors.NewNotFound(corev1.Resource("namespaces"), "web"),
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			w := newWriter(t)
			w.cfg.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
			w.must(t, desired("10.0.0.1"))
			w.api.edit("shop-nodes", nil) // by the namespace controller
			w.api.setFault(false, answersWith(answer))
			for range immediateRepairs + 1 {
				later, before := (*RetryLaterError)(nil), time.Now()
				if err := w.apply(
					t,
					desired("10.0.0.1"),
				); !errors.As(err, &later) || later.Repair ||
					later.At.Before(before.Add(time.Second)) {
					t.Fatalf("got %v, want to be told when to apply again", err)
				}
			}
			if len(w.rejected)+len(w.delayed)+len(w.recoveries) != 0 {
				t.Errorf("reported rejections %+v, delays %+v and recoveries %v", w.rejected, w.delayed, w.recoveries)
			}
			if strings.Contains(text.String(), "level=WARN") || !strings.Contains(text.String(), "level=DEBUG") {
				t.Errorf("want a line at debug level and no warning, got:\n%s", text.String())
			}
			for result, want := range map[Result]int{ResultRejected: 0, ResultTerminating: immediateRepairs + 1} {
				if got := w.countWrites(Create, result); got != want {
					t.Errorf("%d writes are %s, want %d", got, result, want)
				}
			}
			if w.repaired != 0 {
				t.Errorf("%d writes count as repairs, want 0", w.repaired)
			}
		})
	}
}
