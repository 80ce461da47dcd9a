package resolve

import (
	"regexp"
	"strings"
)

// parseProviderID reads both forms in use, ionos://<server> and
// ionos:///<datacenter>/<server>, in lower case. Other forms are unknown.
func parseProviderID(s string) (datacenter, server string, ok bool) {
	rest, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(s)), "ionos://")
	if !ok {
		return "", "", false
	}
	if isUUID(rest) {
		return "", rest, true
	}
	rest, ok = strings.CutPrefix(rest, "/")
	if !ok {
		return "", "", false
	}
	datacenter, server, ok = strings.Cut(rest, "/")
	if !ok || !isUUID(datacenter) || !isUUID(server) {
		return "", "", false
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
