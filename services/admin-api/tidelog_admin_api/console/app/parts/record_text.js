// Values of records as they were written. Parsed and written again, JSON may be another: a number of
// 64 bits is rounded, 1.0 is 1, of two equal keys one is lost.

/** Of a value that came as `encoding` text or base64: {text, as}, in lines where nothing is lost. */
export function shownValue(value, encoding) {
  if (value == null) return { text: "", as: "none" };
  if (encoding !== "text") return { text: value, as: encoding };
  try {
    const parsed = JSON.parse(value);
    const isSame = JSON.stringify(parsed) === value;
    return { text: isSame ? JSON.stringify(parsed, null, 2) : value, as: "json" };
  } catch {
    // No JSON, or nested too deeply to be written again.
    return { text: value, as: "text" };
  }
}
