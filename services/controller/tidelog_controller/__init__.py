"""The controller: elects leaders, creates and deletes topics, notices crashes."""
