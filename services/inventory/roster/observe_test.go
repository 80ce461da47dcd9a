package roster

import (
	"strings"
	"testing"
	"time"
)

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 4: 40 * time.Second, 5: time.Minute, 1000: time.Minute,
	} {
		if got := retryDelay(failures, 5*time.Second, time.Minute); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
	if got := retryDelay(1, time.Hour, time.Minute); got != time.Minute {
		t.Errorf("a pace above the longest pause: %s", got)
	}
}

func TestReasonsAreOneBoundedLineWithoutCredentials(t *testing.T) {
	for _, tc := range []struct{ in, out string }{
		{"a\nb\x1b[31m\t c", "a b [31m c"},
		{"Get: Authorization: Bearer abc.def: denied", "Get: Authorization: [removed] denied"},
		{"eyJhbGciOiJIUzI1NiJ9.e30.x was refused", "[removed] was refused"},
		{"https://user:pw@host/x: EOF", "https:[removed]host/x: EOF"},
		{strings.Repeat(" ", 4085) + "//user:password@host", "[removed]host"},
		{`body {"token":"abc"}`, `body {"[removed]`},
		{"\xff", "?"},
	} {
		if got := sanitize(tc.in); got != tc.out {
			t.Errorf("%q gave %q, want %q", tc.in, got, tc.out)
		}
	}
	if got := sanitize(strings.Repeat("ä ", 100000)); len(got) > 410 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestASourceIsIdleTooLongAfterExactly150Seconds(t *testing.T) {
	for name, alter := range map[string]func(*verifications){
		"no verification succeeded": func(v *verifications) { v.lastContact = t0.Add(time.Hour) },
		"no contact":                func(v *verifications) { v.okAt = t0.Add(time.Hour) },
		"it does not catch up": func(v *verifications) {
			v.okAt, v.lastContact = t0.Add(time.Hour), t0.Add(time.Hour)
			v.pending = pendingVerification{number: 1 << 40, startedAt: t0, endedAt: t0}
		},
	} {
		o := newObserver(Config{})
		o.updateSource(t0, Update{LastContact: t0})
		o.verificationDone(t0, VerificationResult{StartedAt: t0, Mode: FullVerification, Number: 1})
		v := &o.verifications
		if alter(v); o.Status(t0.Add(maxIdle)).Membership.Sync != Synced {
			t.Errorf("%s: not synced after 150 s", name)
		}
		if o.Status(t0.Add(maxIdle+1)).Membership.Sync != Degraded {
			t.Errorf("%s: not degraded after more than 150 s", name)
		}
		behind := name != "no verification succeeded"
		if v.isBehind(t0.Add(maxIdle)) || v.isBehind(t0.Add(maxIdle+1)) != behind {
			t.Errorf("%s: behind at 150 s: %t, and then: %t", name, v.isBehind(t0.Add(maxIdle)), v.isBehind(t0.Add(maxIdle+1)))
		}
		if wake := o.nextStatusChange(t0.Add(maxIdle - time.Second)); !wake.Equal(t0.Add(maxIdle + 1)) {
			t.Errorf("%s: wakes after %s, want just after 150 s", name, wake.Sub(t0))
		}
	}
}
