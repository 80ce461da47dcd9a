package figures

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUsageIsReadWhateverTheProgramIsCalled(t *testing.T) {
	const status = "Name:\tx\nVmPeak:\t  900 kB\nVmRSS:\t     256 kB\n"
	for name, stat := range map[string]string{
		"plainly":               "7 (x) S 1 7 7 0 -1 4194560 9 0 0 0 12 3 0 0 20 0 5 0 100",
		"with spaces, brackets": "7 (a) R (b 1) S 1 7 7 0 -1 4194560 9 0 0 0 12 3 0 0 20 0 5 0 100",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := usageIn(stat, status)
			if err != nil {
				t.Fatal(err)
			}
			want := Usage{CPU: 150 * time.Millisecond, Resident: 256 << 10}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUsageThatIsNotThereIsAnError(t *testing.T) {
	const stat, status = "7 (x) S 1 7 7 0 -1 4194560 9 0 0 0 12 3 0 0", "VmRSS: 1 kB\n"
	for name, texts := range map[string][2]string{
		"a stat that is cut short": {"7 (x) S 1 7", status},
		"no memory in it":          {stat, "Name: x\n"},
		"times that are none":      {"7 (x) S 1 7 7 0 -1 4194560 9 0 0 0 a 3 0 0", status},
	} {
		if got, err := usageIn(texts[0], texts[1]); err == nil {
			t.Errorf("%s gives %+v", name, got)
		}
	}
}

func TestOurOwnUsage(t *testing.T) {
	got, err := UsageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got.Resident <= 0 {
		t.Errorf("got %+v", got)
	}
}
