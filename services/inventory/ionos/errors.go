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
)

// Bounds of what the cloud may ask us to wait.
const (
	// defaultWait is taken when it says "too many requests" and not, or not legibly, until when.
	defaultWait = 30 * time.Second
	// maxWait bounds a slip of theirs (a date in another century), not their right.
	maxWait = 24 * time.Hour
)

// apiError is a call that failed, in words that contain no secret.
type apiError struct {
	text          string
	err           error // nil when the SDK's own error says nothing more, or might say too much
	waitRequested bool
	wait          time.Duration
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.err }

// RetryAfter says how long the cloud asked us to wait, if err comes from an answer that
// asked (429 always does, others by their Retry-After header).
func RetryAfter(err error) (time.Duration, bool) {
	var e *apiError
	if errors.As(err, &e) && e.waitRequested {
		return e.wait, true
	}
	return 0, false
}

var errUnauthorized = errors.New("unauthorized")

// Unauthorized reports whether err comes from an answer that refused the token.
func Unauthorized(err error) bool { return errors.Is(err, errUnauthorized) }

// parseRetryAfter reads Retry-After: seconds or an HTTP date, which counts from the
// response's own Date, since the clocks may differ.
func parseRetryAfter(status int, h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if status < 300 || (value == "" && status != http.StatusTooManyRequests) {
		return 0, false
	}
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil || time.Duration(seconds)*time.Second > maxWait {
			return maxWait, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return defaultWait, true
	}
	if serverTime, err := http.ParseTime(h.Get("Date")); err == nil {
		now = serverTime
	}
	return min(max(until.Sub(now), 0), maxWait), true
}

// callAPI makes one request of the SDK, when its turn has come, within its own deadline.
func (c *Client) callAPI(ctx context.Context, request func(context.Context) error) error {
	if err := c.budget.wait(ctx); err != nil {
		return &apiError{text: err.Error(), err: err}
	}
	ctx, x := withExchange(ctx)
	callCtx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := request(callCtx)
	if err == nil {
		err = callCtx.Err() // cancelled between request and answer, the SDK may say that all went well
	}
	if err == nil {
		return nil
	}
	e := &apiError{waitRequested: x.waitRequested, wait: x.wait}
	switch {
	case ctx.Err() != nil:
		e.text, e.err = ctx.Err().Error(), ctx.Err()
	case callCtx.Err() != nil:
		e.text, e.err = fmt.Sprintf("no whole answer within %s", c.timeout), err
	case x.status == http.StatusUnauthorized:
		// The body is left out: it may repeat what was sent.
		e.err = errUnauthorized
		e.text = "the token is not accepted (HTTP 401): it is wrong or expired, check " + c.token.String()
	case x.status >= 300 && x.status < 400:
		e.text = fmt.Sprintf("refused to follow a redirect (HTTP %d) to %s: check IONOS_API_URL", x.status, redirectHost(x.location))
	case x.status >= 300:
		e.text = fmt.Sprintf("HTTP %d %s%s", x.status, http.StatusText(x.status), errorMessages(err))
	case x.status != 0:
		e.text, e.err = fmt.Sprintf("unreadable answer (HTTP %d): %s", x.status, truncate(err.Error())), err
	default:
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // who reads it knows what was asked for, and where
		}
		e.text, e.err = err.Error(), err
	}
	if x.token != "" {
		if strings.Contains(e.text, x.token) {
			e.text, e.err = strings.ReplaceAll(e.text, x.token, "<token>"), nil
		}
	}
	return e
}

// errorMessages are the cloud's own words about an error, as far as it used its own form.
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

// truncate keeps foreign text from filling logs.
func truncate(s string) string {
	const maxBytes = 200
	if len(s) > maxBytes {
		s = s[:maxBytes] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s), "")
}

func redirectHost(location string) string {
	if u, err := url.Parse(location); err == nil && u.Host != "" {
		return truncate(u.Host)
	}
	return "another place"
}
