// Package browser has a headless Chromium show example pages of the reports, and checks what their readers see. chromedp controls it
// through a pipe, so that nothing listens. The browser ends with the test and keeps nothing.
package browser

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// screen is what a page is shown on.
type screen struct {
	width, height int64
	scale         float64
	dark, mobile  bool
}

// start starts a Chromium, with a profile and a home of its own.
func start(t *testing.T) context.Context {
	t.Helper()
	home := chromedp.Env("HOME=" + t.TempDir())
	chromium, _ := chromedp.NewContext(context.WithoutCancel(t.Context()), chromedp.WithAllocatorOptions(home))
	t.Cleanup(func() { // not by the test's context: a Chromium that is killed leaves its socket behind
		if err := chromedp.Cancel(chromium); err != nil {
			t.Error(err)
		}
	})
	err := chromedp.Do(chromium)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("not run: %v: apt-get install chromium", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return chromium
}

// load loads a page into a tab of its own, with scripts disabled, and returns the tab. As long as it
// is open the page may request nothing else, and its console must stay empty.
func load(chromium context.Context, t *testing.T, url string, on screen) context.Context {
	t.Helper()
	tab, closeTab := chromedp.NewContext(chromium, chromedp.WithListener(func(event any) {
		switch event := event.(type) {
		case *network.EventRequestWillBeSent:
			if asked := event.Request.URL; asked != url && !strings.HasPrefix(asked, "data:") {
				t.Errorf("it asks for %s", asked)
			}
		case *log.EventEntryAdded, *runtime.EventConsoleAPICalled, *runtime.EventExceptionThrown:
			said, err := json.Marshal(event)
			t.Errorf("the console says %s (%v)", said, err)
		}
	}))
	t.Cleanup(closeTab)
	_, silenced := chromedp.Call(tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	_, sized := chromedp.Call(tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: on.width, Height: on.height, DeviceScaleFactor: on.scale, Mobile: on.mobile,
	})
	_, coloured := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: map[bool]string{false: "light", true: "dark"}[on.dark]}},
	})
	if err := errors.Join(silenced, sized, coloured, chromedp.Do(tab, chromedp.Navigate(url))); err != nil {
		t.Fatal(err)
	}
	return tab
}

// evaluate evaluates an expression in a page, though its own scripts are disabled.
func evaluate[T any](tab context.Context, t *testing.T, expression string) T {
	t.Helper()
	result, err := chromedp.Run(tab, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// shoot is the page as a PNG, as wide as the screen and at most so high.
func shoot(tab context.Context, t *testing.T, on screen, height float64) []byte {
	t.Helper()
	whole := evaluate[float64](tab, t, "document.documentElement.scrollHeight")
	shot, err := chromedp.Call(tab, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: new(true),
		Clip:                  &page.Viewport{Width: float64(on.width), Height: min(whole, height), Scale: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return shot.Data
}
