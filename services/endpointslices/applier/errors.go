package applier

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrNotLeader is returned when nothing was written because this process may not lead.
var ErrNotLeader = errors.New("not the leader")

// StaleError says that a slice is not as the plan expected, and that the slices were read again: call Observed and
// LastApplied again, decide, and apply again without a pause.
type StaleError struct {
	Slice string
	Err   error
}

func (e *StaleError) Error() string { return fmt.Sprintf("slice %s changed: %v", e.Slice, e.Err) }

// Unwrap returns the cause.
func (e *StaleError) Unwrap() error { return e.Err }

// RetryLaterError says that nothing was written, and when to apply again.
type RetryLaterError struct {
	At  time.Time
	Err error
	// Repair: only the repair of what other clients did is delayed. A change by the writer need not wait.
	Repair bool
}

func (e *RetryLaterError) Error() string {
	return fmt.Sprintf("not before %s: %v", e.At.Format(time.TimeOnly), e.Err)
}

// Unwrap returns the cause.
func (e *RetryLaterError) Unwrap() error { return e.Err }

// terminatingDelay is how long a write to a namespace that is being deleted waits. Its Service goes soon.
const terminatingDelay = 8 * time.Second

// isNamespaceTerminating reports whether the API server denies a write because its namespace is being deleted or
// gone, and needs no action. NamespaceLifecycle in k8s.io/apiserver gives these answers.
func isNamespaceTerminating(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// Result is what became of a request.
type Result string

// The results of requests.
const (
	ResultOK          Result = "ok"
	ResultConflict    Result = "conflict" // another client changed, created or deleted the slice before
	ResultThrottled   Result = "throttled"
	ResultTerminating Result = "terminating"
	ResultRejected    Result = "rejected" // the API server certainly wrote nothing
	ResultUnknown     Result = "unknown"  // no answer, or one that leaves open whether the write took place
)

func resultOf(verb Verb, err error) Result {
	var status apierrors.APIStatus
	switch {
	case err == nil, verb == Delete && apierrors.IsNotFound(err):
		return ResultOK
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), verb == Update && apierrors.IsNotFound(err):
		return ResultConflict
	case apierrors.IsTooManyRequests(err):
		return ResultThrottled
	case isNamespaceTerminating(err):
		return ResultTerminating
	// A 5xx leaves open what was written: etcd may have been slow to answer.
	case errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 && !apierrors.IsTimeout(err):
		return ResultRejected
	}
	return ResultUnknown
}
