"""What is looked for while a step is being recorded; nothing here runs, or is asked, where nothing is looked for."""
