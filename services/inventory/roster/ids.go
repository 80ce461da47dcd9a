package roster

import (
	"regexp"
	"strings"
)

// parseProviderID reads both forms in use, ionos://<server> and ionos:///<datacenter>/<server>, in lower case. One in
// another form is ours too, and names no server.
func parseProviderID(s string) (datacenter, server string, isOurs bool) {
	rest, isOurs := strings.CutPrefix(strings.ToLower(strings.TrimSpace(s)), "ionos:")
	server, isKnown := strings.CutPrefix(rest, "//")
	if path, isLong := strings.CutPrefix(server, "/"); isLong {
		datacenter, server, _ = strings.Cut(path, "/")
		isKnown = isKnown && isUUID(datacenter)
	}
	if !isOurs || !isKnown || !isUUID(server) {
		return "", "", isOurs
	}
	return datacenter, server, true
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// isUUID reports whether s is a UUID in its usual form, in lower case.
func isUUID(s string) bool { return uuidPattern.MatchString(s) }

// swapUUID reverses the bytes of the first three fields.
func swapUUID(u string) string {
	return u[6:8] + u[4:6] + u[2:4] + u[0:2] + "-" + u[11:13] + u[9:11] + "-" + u[16:18] + u[14:16] + u[18:]
}
