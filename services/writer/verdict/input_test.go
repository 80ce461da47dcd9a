package verdict

import "testing"

func TestConditionsNameTheirState(t *testing.T) {
	for conditions, want := range map[Conditions]string{
		ready: "ready", draining: "draining", notReady: "not ready",
		{Ready: true}:                    "ready=true serving=false terminating=false",
		{Ready: true, Terminating: true}: "ready=true serving=false terminating=true",
		{Serving: true}:                  "ready=false serving=true terminating=false",
		{Terminating: true}:              "ready=false serving=false terminating=true",
	} {
		if got := conditions.String(); got != want {
			t.Errorf("%+v is %q, want %q", conditions, got, want)
		}
	}
}
