package ionos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Limits of the pause that the API may request.
const (
	// defaultRetryAfter applies to 429 Too Many Requests with a missing or invalid Retry-After.
	defaultRetryAfter = 30 * time.Second
	// maxRetryAfter guards against errors of the API, such as a date in another century.
	maxRetryAfter = 24 * time.Hour
)

// callAPI makes one request of the SDK, when the budget allows it. The timeout starts after the wait for
// the budget. The text of its error contains no secret.
func callAPI[T any](
	ctx context.Context,
	c *Client,
	request func(context.Context) (T, *ionoscloud.APIResponse, error),
) (response T, err error) {
	if err := c.acquire(ctx); err != nil {
		return response, err
	}
	callCtx, cancel := context.WithTimeoutCause(ctx, c.timeout,
		fmt.Errorf("no complete response within %s: %w", c.timeout, context.DeadlineExceeded))
	defer cancel()
	response, received, err := request(callCtx)
	if callCtx.Err() != nil { // the SDK may return no error if it is canceled between request and response
		return response, context.Cause(callCtx)
	}
	if err == nil {
		return response, nil
	}
	if received == nil || received.Response == nil {
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // without method and URL, which the caller knows
		}
		return response, err
	}
	err = c.describeError(received.Response, err)
	if pause, ok := parseRetryAfter(received.Response, time.Now()); ok {
		err = retryError{err, pause}
	}
	return response, err
}

// describeError returns what is wrong with a response, in words for people.
func (c *Client) describeError(r *http.Response, err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok && r.StatusCode < 300 {
		return fmt.Errorf("response is longer than %d bytes", tooLarge.Limit)
	}
	switch code := r.StatusCode; {
	case code == http.StatusUnauthorized:
		return fmt.Errorf("token not accepted (HTTP 401), it is wrong or expired; check %s", c.transport.token)
	case code >= 300 && code < 400:
		return fmt.Errorf("redirect (HTTP %d) to %s not followed; check IONOS_API_URL", code, redirectHost(r.Header.Get("Location")))
	case code >= 300:
		return fmt.Errorf("HTTP %d %s%s", code, http.StatusText(code), errorMessages(err))
	default:
		return fmt.Errorf("invalid response (HTTP %d): %s", code, truncate(err.Error()))
	}
}

// errorMessages returns the messages of an error response, if it has the API's format.
func errorMessages(err error) string {
	e, _ := errors.AsType[ionoscloud.GenericOpenAPIError](err)
	model, _ := e.Model().(ionoscloud.Error)
	var texts []string
	for _, m := range ionoscloud.ToValueDefault(model.Messages) {
		if m.Message != nil {
			texts = append(texts, *m.Message)
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return ": " + truncate(strings.Join(texts, "; "))
}

// truncate keeps untrusted text from filling logs.
func truncate(s string) string {
	return display.Truncate(display.Sanitize(s), 200)
}

func redirectHost(location string) string {
	if u, err := url.Parse(location); err == nil && u.Host != "" {
		return truncate(u.Host)
	}
	return "an unknown host"
}

// retryError is the error of a response that requested a pause.
type retryError struct {
	error

	pause time.Duration
}

// RetryAfter returns the pause that the API requested, if err is from a response that requested one. A
// response with status 429 always does, others do if they have a Retry-After header.
func RetryAfter(err error) (time.Duration, bool) {
	e, ok := errors.AsType[retryError](err)
	return e.pause, ok
}

// parseRetryAfter parses Retry-After (RFC 9110, section 10.2.3): seconds or an HTTP date. A date is
// relative to the Date header of the response, because the clocks may differ.
func parseRetryAfter(r *http.Response, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(r.Header.Get(retryAfterHeader))
	if r.StatusCode < 300 || value == "" && r.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil || time.Duration(seconds)*time.Second > maxRetryAfter {
			return maxRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return defaultRetryAfter, true
	}
	if serverTime, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		now = serverTime
	}
	return min(max(until.Sub(now), 0), maxRetryAfter), true
}
