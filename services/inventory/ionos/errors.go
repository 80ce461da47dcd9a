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
	"github.com/slicefeed/slicefeed/services/inventory/ionoshttp"
)

// Limits of the pause that the API may request.
const (
	// defaultRetryAfter applies to 429 Too Many Requests with a missing or invalid Retry-After.
	defaultRetryAfter = 30 * time.Second
	// maxRetryAfter guards against errors of the API, such as a date in another century.
	maxRetryAfter = 24 * time.Hour
)

// apiError is a failed call. Its text contains no secret.
type apiError struct {
	text       string
	err        error          // nil if the SDK's error has no more information
	retryAfter *time.Duration // the pause that the API requested, if any
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.err }

// RetryAfter returns the pause that the API requested, if err is from a response that requested one. A
// response with status 429 always does, others do if they have a Retry-After header.
func RetryAfter(err error) (time.Duration, bool) {
	var e *apiError
	if errors.As(err, &e) && e.retryAfter != nil {
		return *e.retryAfter, true
	}
	return 0, false
}

// parseRetryAfter parses Retry-After (RFC 9110, section 10.2.3): seconds or an HTTP date. A date is
// relative to the Date header of the response, because the clocks may differ.
func parseRetryAfter(status int, h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if status < 300 || (value == "" && status != http.StatusTooManyRequests) {
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
	if serverTime, err := http.ParseTime(h.Get("Date")); err == nil {
		now = serverTime
	}
	return min(max(until.Sub(now), 0), maxRetryAfter), true
}

// callAPI makes one request of the SDK, when the budget allows it. The timeout starts after the wait for
// the budget.
func callAPI[T any](
	ctx context.Context,
	c *Client,
	request func(context.Context) (T, *ionoscloud.APIResponse, error),
) (response T, err error) {
	if err := c.budget.acquire(ctx); err != nil {
		return response, err
	}
	x := new(ionoshttp.Exchange)
	callCtx, cancel := context.WithTimeout(ionoshttp.WithExchange(ctx, x), c.timeout)
	defer cancel()
	response, _, err = request(callCtx)
	if err == nil {
		err = callCtx.Err() // canceled between request and response, the SDK may return no error
	}
	if err == nil {
		return response, nil
	}
	return response, c.describeError(ctx, callCtx, x, err)
}

// describeError returns what went wrong in a call, in words for people.
func (c *Client) describeError(ctx, callCtx context.Context, x *ionoshttp.Exchange, err error) error {
	var tooLarge *http.MaxBytesError
	e := new(apiError)
	if pause, ok := parseRetryAfter(x.Status, x.Header, time.Now()); ok {
		e.retryAfter = &pause
	}
	switch {
	case ctx.Err() != nil:
		e.text, e.err = ctx.Err().Error(), ctx.Err()
	case callCtx.Err() != nil:
		e.text, e.err = fmt.Sprintf("no complete response within %s", c.timeout), err
	case x.Status == http.StatusUnauthorized:
		e.text = "token not accepted (HTTP 401), it is wrong or expired; check " + c.transport.Token.String()
	case x.Status >= 300 && x.Status < 400:
		e.text = fmt.Sprintf("redirect (HTTP %d) to %s not followed; check IONOS_API_URL", x.Status, redirectHost(x.Header.Get("Location")))
	case x.Status >= 300:
		e.text = fmt.Sprintf("HTTP %d %s%s", x.Status, http.StatusText(x.Status), errorMessages(err))
	case errors.As(err, &tooLarge):
		e.text, e.err = fmt.Sprintf("response is longer than %d bytes", tooLarge.Limit), err
	case x.Status != 0:
		e.text, e.err = fmt.Sprintf("invalid response (HTTP %d): %s", x.Status, truncate(err.Error())), err
	default:
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // without method and URL, which the caller knows
		}
		e.text, e.err = err.Error(), err
	}
	return e
}

// errorMessages returns the messages of an error response, if it has the API's format.
func errorMessages(err error) string {
	var e ionoscloud.GenericOpenAPIError
	if !errors.As(err, &e) {
		return ""
	}
	model, ok := e.Model().(ionoscloud.Error)
	if !ok || model.Messages == nil {
		return ""
	}
	var texts []string
	for _, m := range *model.Messages {
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
