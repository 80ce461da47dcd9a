// Package browser has a headless Chromium load a page, and says what came of it. It promises that the
// browser dies with us and keeps nothing, and that each page begins without what another one left.
// It refuses to be a library for browsers: it speaks as much of the DevTools protocol as our pages
// need, over a pipe, so that nothing has to listen anywhere.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Names are what Chromium's program is called, the first that is there.
var Names = []string{"chromium", "chromium-browser", "google-chrome"}

// Find returns the program.
func Find() (string, error) {
	for _, name := range Names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s is there: apt-get install chromium", strings.Join(Names, ", "))
}

// Browser is a running Chromium.
type Browser struct {
	cmd    *exec.Cmd
	to     *os.File
	done   chan struct{}
	output bytes.Buffer

	mu      sync.Mutex
	next    int
	answers map[int]chan message
	events  map[string]func(message) // by session
	failed  error
}

// message is a question, an answer or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts the program with a profile of its own in a directory.
func Start(path, dir string) (*Browser, error) {
	read, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, read.Close(), to.Close())
	}
	b := &Browser{to: to, done: make(chan struct{}), answers: map[int]chan message{}, events: map[string]func(message){}}
	b.cmd = exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--user-data-dir="+dir,
		// It runs as root of a namespace, in which it can make no sandbox, and sees our pages only.
		"--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb")
	b.cmd.ExtraFiles = []*os.File{read, write} // 3 and 4, by Chromium's agreement
	b.cmd.Env = append(os.Environ(), "HOME="+dir)
	b.cmd.Stdout, b.cmd.Stderr = &b.output, &b.output
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = b.cmd.Start()
	_ = read.Close() // the child's
	_ = write.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), to.Close(), from.Close())
	}
	go func() { // ends with the browser; Close waits for it
		defer close(b.done)
		b.listen(from)
	}()
	return b, nil
}

// listen hands on what the browser says, until it says nothing any more.
func (b *Browser) listen(from *os.File) {
	defer from.Close() //nolint:errcheck // it is only read
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		raw, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.failed = fmt.Errorf("the browser has ended: %w", err)
			for id, answer := range b.answers {
				delete(b.answers, id)
				close(answer)
			}
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		answer, event := b.answers[m.ID], b.events[m.Session]
		delete(b.answers, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && answer != nil:
			answer <- m
		case m.ID == 0 && event != nil:
			event(m)
		}
	}
}

// call asks the browser something and reads its answer.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	if b.failed != nil {
		defer b.mu.Unlock()
		return b.failed
	}
	b.next++
	m := message{ID: b.next, Session: session, Method: method, Params: raw}
	b.answers[m.ID] = answer
	b.mu.Unlock()
	if raw, err = json.Marshal(m); err != nil {
		return err
	}
	if _, err := b.to.Write(append(raw, 0)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", method, b.failed)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// Close ends the browser, and all that it has started, and waits for it.
func (b *Browser) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = b.call(ctx, "", "Browser.close", struct{}{}, nil) // it may have ended
	_ = b.to.Close()
	select {
	case <-b.done:
	case <-ctx.Done():
	}
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // what is left of it
	<-b.done
	_ = b.cmd.Wait() // it was killed, perhaps
	return nil
}

// Screen is what a page is shown on.
type Screen struct {
	Width, Height int
	Scale         float64
	Dark, Mobile  bool
}

// Page is one that was loaded.
type Page struct {
	browser *Browser
	session string
	target  string

	mu       sync.Mutex
	requests []string // URLs that were asked for
	says     []string // errors and warnings of the console
}

// Load loads a page with scripts disabled, and returns when it is whole.
func (b *Browser) Load(ctx context.Context, url string, on Screen) (*Page, error) {
	p := &Page{browser: b}
	var made struct {
		Target  string `json:"targetId"`
		Session string `json:"sessionId"`
	}
	if err := b.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &made); err != nil {
		return nil, err
	}
	p.target = made.Target
	if err := b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": p.target, "flatten": true}, &made); err != nil {
		return nil, err
	}
	p.session = made.Session
	loaded := make(chan struct{}, 1)
	b.mu.Lock()
	b.events[p.session] = func(m message) { p.hear(m, loaded) }
	b.mu.Unlock()
	scheme := map[bool]string{false: "light", true: "dark"}[on.Dark]
	for _, one := range []struct {
		method string
		params any
	}{
		{"Page.enable", nil},
		{"Network.enable", nil},
		{"Log.enable", nil},
		{"Runtime.enable", nil},
		{"Emulation.setScriptExecutionDisabled", map[string]any{"value": true}},
		{"Emulation.setDeviceMetricsOverride", map[string]any{"width": on.Width, "height": on.Height, "deviceScaleFactor": on.Scale, "mobile": on.Mobile}},
		{"Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}},
		{"Page.navigate", map[string]any{"url": url}},
	} {
		params := one.params
		if params == nil {
			params = struct{}{}
		}
		if err := b.call(ctx, p.session, one.method, params, nil); err != nil {
			return nil, err
		}
	}
	select {
	case <-loaded:
		return p, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("load %s: %w", url, ctx.Err())
	}
}

func (p *Page) hear(m message, loaded chan<- struct{}) {
	var said struct {
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Entry struct {
			Level string `json:"level"`
			Text  string `json:"text"`
		} `json:"entry"`
		Type string `json:"type"`
	}
	_ = json.Unmarshal(m.Params, &said) // what is not there is empty
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, said.Request.URL)
	case "Log.entryAdded":
		p.says = append(p.says, said.Entry.Level+": "+said.Entry.Text)
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown":
		p.says = append(p.says, m.Method+" "+said.Type)
	case "Page.loadEventFired":
		select {
		case loaded <- struct{}{}:
		default:
		}
	}
}

// Requests returns the URLs that the page has asked for.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// Says returns what the console says.
func (p *Page) Says() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.says...)
}

// Evaluate evaluates an expression in the page, though its own scripts are disabled.
func (p *Page) Evaluate(ctx context.Context, expression string, result any) error {
	var answer struct {
		Result    struct{ Value json.RawMessage }
		Exception *struct{ Text string } `json:"exceptionDetails"`
	}
	err := p.browser.call(ctx, p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	if err != nil {
		return err
	}
	if answer.Exception != nil {
		return fmt.Errorf("evaluate: %s", answer.Exception.Text)
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// Picture is the page as a PNG, as wide as the screen and at most so high.
func (p *Page) Picture(ctx context.Context, on Screen, height int) ([]byte, error) {
	var whole int
	if err := p.Evaluate(ctx, "document.documentElement.scrollHeight", &whole); err != nil {
		return nil, err
	}
	var shot struct{ Data string }
	err := p.browser.call(ctx, p.session, "Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true, "optimizeForSpeed": false,
		"clip": map[string]any{"x": 0, "y": 0, "width": on.Width, "height": min(whole, height), "scale": 1},
	}, &shot)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(shot.Data)
}

// Close closes the page.
func (p *Page) Close(ctx context.Context) error {
	p.browser.mu.Lock()
	delete(p.browser.events, p.session)
	p.browser.mu.Unlock()
	return p.browser.call(ctx, "", "Target.closeTarget", map[string]any{"targetId": p.target}, nil)
}
