// Values of records as they were written. Parsing and serializing can change JSON: a 64-bit number is
// rounded, 1.0 becomes 1, and one of two equal keys is lost.

/** {text, as} of a value with `encoding` text or base64. JSON is indented if it stays the same. */
export function shownValue(value, encoding) {
  if (value == null) return { text: "", as: "none" };
  if (encoding !== "text") return { text: value, as: encoding };
  try {
    const parsed = JSON.parse(value);
    const isSame = JSON.stringify(parsed) === value;
    return { text: isSame ? JSON.stringify(parsed, null, 2) : value, as: "json" };
  } catch {
    // Not JSON, or nested too deeply to be serialized.
    return { text: value, as: "text" };
  }
}
