package applier

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// terminatingPause is how long a write waits whose namespace is being deleted. Its Service goes soon.
const terminatingPause = 8 * time.Second

// namespaceEnds reports whether the API server denies a write because its namespace is being deleted, or is gone.
// Nobody has to do anything about that. NamespaceLifecycle in k8s.io/apiserver gives these answers.
func namespaceEnds(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}
