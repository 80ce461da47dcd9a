package app

import (
	"testing"
	"time"
)

func TestVerificationsOfExportedServicesAreSpread(t *testing.T) {
	first := newRosterConfig(&Config{SourceKind: "service", ExportSelector: "export=true"}).VerifyInterval
	differ := false
	for range 100 {
		interval := newRosterConfig(&Config{SourceKind: "service", ExportSelector: "export=true"}).VerifyInterval
		if interval <= 45*time.Second || interval > time.Minute {
			t.Errorf("verified each %s, want each 45s to 1m0s", interval)
		}
		differ = differ || interval != first
	}
	if !differ {
		t.Errorf("100 Services are all verified each %s", first)
	}
	if interval := newRosterConfig(&Config{SourceKind: "service", SourceService: "shop/web"}).VerifyInterval; interval != 0 {
		t.Errorf("the only Service is verified each %s, want the default", interval)
	}
}
